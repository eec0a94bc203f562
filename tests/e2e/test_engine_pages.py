"""Fleet, engines and operations in a real browser, with engines in every state beside each other."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone
from playwright.sync_api import Page, Route, expect

from engines.choices import EngineState, HostAuth, HostKind, OperationKind, OperationState, StepState
from engines.metrics.store import Polled, Sample, SampleStore, mark_polled
from engines.models import Engine, EngineStart, Operation
from engines.operations.begin import begin_operation
from engines.states import touch_engine
from kvadmin.actions import Actor
from tests.e2e.pages import check_page
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory, RevisionFactory
from tests.support.route_factories import TargetFactory

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

#: name, state, KV cache usage, running, waiting
FLEET = [
    ("qwen3-8b-v1", EngineState.READY, 0.46, 4.0, 0.0),
    ("qwen3-32b-fp8-v2", EngineState.READY, 0.97, 61.0, 12.0),
    ("glm-5-air-v1", EngineState.READY, None, None, None),
    ("deepseek-v4-lite-v1", EngineState.LOADING, None, None, None),
    ("llama-guard-v3-with-a-name-that-goes-on-and-on-and-does-not-end", EngineState.FAILED, None, None, None),
    ("embed-v1", EngineState.UNREACHABLE, None, None, None),
    ("spare-v1", EngineState.STOPPED, None, None, None),
]
REASON = "The GPU ran out of memory while the KV cache was made: 12.4 GiB were asked for, 9.1 GiB were free."


def line(number: int) -> str:
    return f"(APIServer pid=8) INFO 11-30 14:22:{number % 60:02d} [loggers.py:257] Engine 000: line {number}"


@pytest.fixture(autouse=True)
def quiet_queue(monkeypatch):
    """Operations are created; nobody moves them on."""
    monkeypatch.setattr("engines.operations.begin._enqueue", lambda *_args: None)


def read(engine: Engine, at, usage: float, running: float, waiting: float) -> None:
    values = {"kv_usage_ratio": usage, "requests_running": running, "requests_waiting": waiting}
    SampleStore().write([Sample(engine.pk, at, values)])
    mark_polled([Polled(engine.pk, at, at, True)])
    touch_engine(engine.pk)


@pytest.fixture
def fleet(transactional_db, tmp_path):
    log = tmp_path / "log"
    log.write_text("".join(line(number) + "\n" for number in range(3000)))
    here = HostFactory(
        name="this-machine", kind=HostKind.LOCAL, auth=HostAuth.NONE, address="", work_dir=str(tmp_path)
    )
    there = HostFactory(name="h200-a")
    now = timezone.now()
    engines = {}
    for place, (name, state, usage, running, waiting) in enumerate(FLEET):
        host = there if state == EngineState.UNREACHABLE else here
        engine = EngineFactory(
            name=name,
            host=host,
            environment=EnvironmentFactory(host=host),
            revision=RevisionFactory(environment={"VLLM_LOGGING_LEVEL": "INFO"}),
            observed=state,
            state_at=now,
            vllm_version="0.32.0",
            max_model_len=32768,
            reason=REASON if state == EngineState.FAILED else "",
        )
        engines[name] = engine
        if state != EngineState.STOPPED:
            engine.current_start = EngineStart.objects.create(
                engine=engine,
                number=1,
                revision=engine.revision,
                log_path=str(log),
                pid=4711 + place,
                ready_at=now,
                vllm_version="0.32.0",
                exit_status=1 if state == EngineState.FAILED else None,
                last_lines="\n".join(line(number) for number in range(25)),
            )
            engine.save()
        if usage is not None:
            for number in range(40):
                at = now - timedelta(seconds=200 - 5 * number)
                read(engine, at, usage * (0.6 + number / 100), running, waiting)
        else:
            touch_engine(engine.pk)
    operation = begin_operation(
        OperationKind.START,
        actor=Actor.system(),
        host=here,
        engine=engines["deepseek-v4-lite-v1"],
        parameters={},
    )
    loading = list(operation.steps.all())
    for step in loading[:3]:
        step.state, step.started_at, step.finished_at = StepState.DONE, now, now
    loading[3].state, loading[3].started_at = StepState.RUNNING, now
    loading[3].detail = "Loading weights, 12 of 30 files"
    for step in loading:
        step.save()
    Operation.objects.filter(pk=operation.pk).update(
        state=OperationState.RUNNING, progress=0.41, progress_text="Loading weights, 12 of 30 files"
    )
    for number in range(60):
        operation.lines.create(text=line(number))
    Operation.objects.create(
        kind=OperationKind.START,
        host=here,
        engine=engines[FLEET[4][0]],
        state=OperationState.FAILED,
        message=REASON,
        remedy="Lower the GPU memory utilization in the profile, or stop what else uses the card.",
        finished_at=now,
    )
    yield engines
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE engines_sample, engines_minute, engines_hour")
        cursor.execute("UPDATE engines_rollup SET upto = NULL")


@pytest.fixture
def signed_in(sign_in_as, operator, fleet) -> Page:
    page = sign_in_as(operator)
    # the live server is no ASGI server: it would answer a stream when the stream is over
    page.route(
        "**/log/stream?*",
        lambda route: route.fulfill(content_type="text/event-stream", body="event: end\ndata: {}\n\n"),
    )
    return page


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("fleet", "/"),
        ("fleet-by-host", "/?view=host"),
        ("fleet-trouble", "/?view=trouble"),
        ("fleet-no-match", "/?q=nothing-has-this-name"),
        ("engine-list", "/engines/"),
        ("engine-add", "/engines/add"),
        ("operation-list", "/operations/"),
    ],
)
def test_a_page_of_many(signed_in, name, path):
    signed_in.goto(path)
    check_page(signed_in, name)


@pytest.mark.parametrize("state", ["ready", "loading", "failed", "unreachable", "stopped"])
def test_an_engine_in_each_state(signed_in, fleet, state):
    engine = next(engine for engine in fleet.values() if engine.observed == state)
    signed_in.goto(engine.get_absolute_url())
    for chart in signed_in.locator(".chart").all():
        chart.scroll_into_view_if_needed()
        expect(chart).to_have_attribute("data-drawn", re.compile(r"\d+"))
    signed_in.evaluate("scrollTo(0, 0)")
    check_page(signed_in, f"engine-{state}")


@pytest.mark.parametrize("tab", ["log/", "operations", "starts", "edit"])
def test_the_other_pages_of_an_engine(signed_in, fleet, tab):
    signed_in.goto(fleet["qwen3-8b-v1"].get_absolute_url() + tab)
    check_page(signed_in, f"engine-tab-{tab.strip('/')}")


def test_an_operation_shows_the_end_of_its_log(signed_in, fleet):
    signed_in.goto(Operation.objects.get(state=OperationState.RUNNING).get_absolute_url())
    log = signed_in.get_by_label("Log of the operation")
    assert log.evaluate("e => e.scrollTop > 0 && e.scrollTop + e.clientHeight >= e.scrollHeight - 8")
    check_page(signed_in, "operation")


def test_a_failed_operation_says_why_and_what_to_do(signed_in, fleet):
    signed_in.goto(Operation.objects.get(state=OperationState.FAILED).get_absolute_url())
    expect(signed_in.get_by_text("Lower the GPU memory utilization")).to_be_visible()
    check_page(signed_in, "operation-failed")


def test_a_question_and_the_focus_outlast_the_renewal_around_them(signed_in, fleet):
    page = signed_in
    engine = fleet["qwen3-8b-v1"]
    page.goto(engine.get_absolute_url())
    stop = page.get_by_role("button", name="Stop", exact=True)
    stop.focus()
    renewed(page, engine, 0.51)
    expect(stop).to_be_focused()
    # asked while an answer that would renew the part is on its way
    held: list[Route] = []
    page.route("**/state?*", lambda route: held.append(route))
    read(engine, timezone.now(), 0.52, 4.0, 0.0)
    while not held:
        page.wait_for_timeout(50)
    stop.click()
    with page.expect_response(re.compile(r"/state\?")) as answer:
        held.pop().continue_()
    assert answer.value.status == 200
    page.unroute("**/state?*")
    page.wait_for_timeout(500)
    question = page.get_by_role("dialog")
    expect(question).to_be_visible()
    check_page(page, "engine-question")
    question.get_by_role("button", name="Cancel").click()
    expect(question).to_be_hidden()


def renewed(page: Page, engine: Engine, usage: float) -> None:
    """One more reading, and the state part of the engine's page anew because of it."""
    with page.expect_response(lambda answer: "/state?" in answer.url and answer.status == 200):
        read(engine, timezone.now(), usage, 4.0, 0.0)
    page.wait_for_timeout(300)


def test_one_with_callers_can_be_stopped_at_once(signed_in, fleet):
    engine = Engine.objects.get(name="qwen3-8b-v1")
    TargetFactory(engine=engine)
    page = signed_in
    page.goto(engine.get_absolute_url())
    page.get_by_role("button", name="Stop", exact=True).click()
    question = page.get_by_role("dialog")
    expect(question).to_contain_text("it finishes the requests it has first")
    question.get_by_label("At once: requests that are running are cut off").check()
    check_page(page, "engine-stop-at-once")
    question.get_by_role("button", name="Stop").click()
    expect(page.locator("[data-live] .badge").first).to_have_text("Stopping")
    assert Operation.objects.filter(engine=engine).latest("created_at").kind == OperationKind.STOP


def test_a_card_renews_itself_and_its_change_is_said(signed_in, fleet):
    page = signed_in
    page.goto("/")
    engine = fleet["qwen3-8b-v1"]
    card = page.locator(f"#engine-{engine.pk}")
    link = card.get_by_role("link")
    link.focus()
    read(engine, timezone.now(), 0.77, 9.0, 1.0)
    expect(card.locator("div.row b").first).to_have_text("77%")
    expect(link).to_be_focused()
    engine.refresh_from_db()
    engine.move(EngineState.STOPPING, only_from=(EngineState.READY,))
    expect(card.locator(".badge")).to_have_text("Stopping")
    expect(page.locator("#fleet-news")).to_have_text("qwen3-8b-v1: Stopping")


def test_the_log_pages_back_searches_and_jumps_to_its_end(signed_in, fleet, tmp_path):
    page = signed_in
    page.goto(fleet["qwen3-8b-v1"].get_absolute_url() + "log/")
    text = page.locator("[data-log-text]")
    expect(text).to_contain_text("line 2999")
    assert text.evaluate("e => e.scrollTop + e.clientHeight >= e.scrollHeight - 8")
    page.get_by_role("button", name="Older").click()
    expect(text).to_contain_text("line 2100")
    page.get_by_label("Search the log").fill("line 777")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_text("Lines found: 1")).to_be_visible()
    page.locator("[data-log-hits] button").click()
    expect(text).to_contain_text("line 777")
    assert text.evaluate("e => e.scrollTop > 0")
    check_page(page, "engine-log-search")
    with (tmp_path / "log").open("a") as log:
        log.write("something new\n")
    page.get_by_role("button", name="Jump to end").click()
    expect(text).to_contain_text("something new")


def test_a_page_that_cannot_be_renewed_says_so_until_it_can(sign_in_as, page, operator):
    EngineFactory()
    sign_in_as(operator)
    page.goto("/")
    page.watched.expected_statuses.add(503)
    page.route("**/fleet/cards*", lambda route: route.fulfill(status=503, body=""))
    page.wait_for_selector("main[data-offline]")
    shown = page.evaluate("getComputedStyle(document.querySelector('main'), '::before').content")
    assert "may be old" in shown
    page.unroute("**/fleet/cards*")
    page.wait_for_selector("main:not([data-offline])")
