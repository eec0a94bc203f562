"""Engines over the API: settings, starts, log, and what is done with them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from engines.choices import EngineState, HostAuth, HostKind, HostState, OperationKind
from engines.metrics.store import Sample, SampleStore
from engines.models import Engine, EngineStart, Operation
from kvadmin.models import AuditEvent
from tests.support.api import Api, assert_problem
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory, RevisionFactory
from tests.support.route_factories import TargetFactory


@pytest.fixture
def api(operator):
    return Api(operator)


@pytest.fixture
def engine(db):
    host = HostFactory()
    return EngineFactory(host=host, environment=EnvironmentFactory(host=host), api_key="engine-own-key-123")


def local_engine(tmp_path, data: bytes):
    host = HostFactory(
        kind=HostKind.LOCAL, auth=HostAuth.NONE, address="", state=HostState.ONLINE, host_key=""
    )
    engine = EngineFactory(host=host)
    log = tmp_path / "log"
    log.write_bytes(data)
    EngineStart.objects.create(engine=engine, number=1, log_path=str(log))
    return engine


def test_it_makes_an_engine_from_a_profile(api):
    environment, revision = EnvironmentFactory(), RevisionFactory()
    body = {"name": "qwen-a", "host": environment.host.pk, "profile": revision.profile.pk}
    response = api.post("engines/", body)
    assert response.status_code == 201, response.content
    made = response.json()
    assert (made["state"], made["desired"], made["operation"]) == ("stopped", "stopped", None)
    assert made["port"] == 8000
    assert made["revision"]["number"] == 1
    assert made["environment"]["version"] == "0.32.0"
    assert Engine.objects.get().api_key not in response.content.decode()
    assert AuditEvent.objects.get(verb="engine.create").token_id == api.token.pk


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"host": 999999}, "host"),
        ({"host": "1"}, "host"),
        ({"host": True}, "host"),
        ({"host": 2**70}, "host"),
        ({"port": 0}, "port"),
        ({"port": 70000}, "port"),
        ({"revision": None}, "revision"),
        ({"hots": 1}, "hots"),
        ({"bind_address": "not an address"}, "bind_address"),
    ],
)
def test_wrong_input_is_named(api, change, field):
    environment, revision = EnvironmentFactory(), RevisionFactory()
    body = {"name": "qwen-a", "host": environment.host.pk, "revision": revision.pk}
    assert_problem(api.post("engines/", {**body, **change}), 400, "invalid", field)
    assert not Engine.objects.exists()


def test_revision_and_profile_exclude_each_other(api, engine):
    body = {"name": "b", "host": engine.host.pk}
    both = {**body, "revision": engine.revision.pk, "profile": engine.revision.profile.pk}
    assert_problem(api.post("engines/", both), 400, "invalid", "revision")
    assert_problem(api.post("engines/", body), 400, "invalid", "revision")


def test_a_taken_port_is_refused(api, engine):
    body = {"name": "b", "host": engine.host.pk, "revision": engine.revision.pk, "port": engine.port}
    assert_problem(api.post("engines/", body), 400, "invalid", "port")


def test_it_changes_an_engine(api, engine):
    revision = RevisionFactory(profile=engine.revision.profile)
    response = api.patch(f"engines/{engine.pk}/", {"revision": revision.pk, "keep_running": True})
    assert response.status_code == 200, response.content
    assert response.json()["revision"]["number"] == 2
    assert response.json()["keep_running"] is True


def test_it_starts_and_points_to_the_operation(api, engine):
    response = api.post(f"engines/{engine.pk}/start/")
    assert response.status_code == 202, response.content
    operation = Operation.objects.get()
    assert response["Location"].endswith(f"/api/manage/v1/operations/{operation.uuid}/")
    assert api.get(response["Location"]).json()["kind"] == "start"
    assert operation.source == "api"
    shown = api.get(f"engines/{engine.pk}/").json()
    assert (shown["state"], shown["desired"], shown["operation"]) == (
        "starting",
        "running",
        str(operation.uuid),
    )


def test_a_second_start_is_a_conflict(api, engine):
    api.post(f"engines/{engine.pk}/start/")
    response = api.post(f"engines/{engine.pk}/start/")
    assert response.status_code == 409
    assert response.json()["remedy"]


def test_a_repeated_start_by_key_is_the_same_operation(api, engine):
    key = {"Idempotency-Key": "start-1"}
    first = api.post(f"engines/{engine.pk}/start/", **key)
    again = api.post(f"engines/{engine.pk}/start/", **key)
    assert again["Idempotency-Replayed"] == "true"
    assert again.json()["uuid"] == first.json()["uuid"]
    assert again["Location"] == first["Location"]
    assert again.status_code == 202
    assert Operation.objects.count() == 1


@pytest.mark.parametrize(
    ("verb", "state", "kind"),
    [
        ("stop", EngineState.READY, OperationKind.STOP),
        ("drain", EngineState.READY, OperationKind.DRAIN),
        ("restart", EngineState.READY, OperationKind.RESTART),
    ],
)
def test_each_verb_begins_its_operation(api, engine, verb, state, kind):
    Engine.objects.update(observed=state)
    response = api.post(f"engines/{engine.pk}/{verb}/")
    assert response.status_code == 202, response.content
    assert Operation.objects.get().kind == kind


@pytest.mark.parametrize(
    ("body", "kind"), [({}, OperationKind.DRAIN), ({"at_once": True}, OperationKind.STOP)]
)
def test_an_engine_with_callers_is_stopped_at_once_where_that_is_asked_for(api, engine, body, kind):
    Engine.objects.update(observed=EngineState.READY)
    TargetFactory(engine=engine)
    response = api.post(f"engines/{engine.pk}/stop/", {"grace_s": 5, **body})
    assert response.status_code == 202, response.content
    assert Operation.objects.get().kind == kind


def test_it_cancels_a_start(api, engine):
    uuid = api.post(f"engines/{engine.pk}/start/").json()["uuid"]
    response = api.post(f"operations/{uuid}/cancel/")
    assert response.status_code == 202, response.content
    assert response.json()["cancel_requested"] is True
    Operation.objects.update(state="cancelled")
    assert_problem(api.post(f"operations/{uuid}/cancel/"), 409, "operation_ended")


def test_several_at_once_answer_for_each(api, engine):
    host = HostFactory()
    ready = EngineFactory(host=host, environment=EnvironmentFactory(host=host), observed=EngineState.READY)
    response = api.post("engines/operate/", {"engines": [engine.pk, ready.pk, 999999], "do": "start"})
    assert response.status_code == 202, response.content
    begun, refused, unknown = response.json()["results"]
    assert begun["operation"]["engine"]["id"] == engine.pk
    assert begun["problem"] is None
    assert (refused["operation"], refused["problem"]["status"]) == (None, 409)
    assert unknown["problem"]["code"] == "engine_unknown"
    batch = response.json()["batch"]
    assert len(api.get(f"operations/?batch={batch}").json()["results"]) == 1
    assert_problem(api.post("engines/operate/", {"engines": [], "do": "start"}), 400, "invalid", "engines")
    assert_problem(api.post("engines/operate/", {"engines": [1], "do": "explode"}), 400, "invalid", "do")


def test_it_forgets_a_stopped_engine_only(api, engine):
    Engine.objects.update(observed=EngineState.READY)
    assert_problem(api.delete(f"engines/{engine.pk}/"), 409, "engine_running")
    Engine.objects.update(observed=EngineState.STOPPED)
    assert_problem(api.delete(f"engines/{engine.pk}/?frget=1"), 400, "invalid", "frget")
    assert api.delete(f"engines/{engine.pk}/").status_code == 204
    assert_problem(api.get(f"engines/{engine.pk}/"), 404, "not_found")


def test_it_filters(api, engine):
    other = EngineFactory(observed=EngineState.READY, served_names=["qwen3-8b", "chat"])

    def found(query):
        return [row["id"] for row in api.get(f"engines/?{query}").json()["results"]]

    assert found("") == [engine.pk, other.pk]
    assert found("state=ready&state=failed") == [other.pk]
    assert found(f"host={engine.host.pk}") == [engine.pk]
    assert found(f"profile={other.revision.profile.pk}") == [other.pk]
    assert found("served_name=chat") == [other.pk]
    assert found("served_name=cha") == []
    assert_problem(api.get("engines/?sate=ready"), 400, "invalid", "sate")


def test_a_list_costs_the_same_for_many(api, django_assert_num_queries):
    for _ in range(4):
        host = HostFactory()
        one = EngineFactory(host=host, environment=EnvironmentFactory(host=host))
        one.current_start = EngineStart.objects.create(engine=one, number=1, revision=one.revision)
        one.save()
        api.post(f"engines/{one.pk}/start/")
    api.get("engines/")
    with django_assert_num_queries(2):
        assert len(api.get("engines/").json()["results"]) == 4


def test_starts_and_transitions(api, engine, django_assert_num_queries):
    EngineStart.objects.create(
        engine=engine,
        number=1,
        revision=engine.revision,
        command=["vllm", "serve", "m", "--api-key", "topsecretvalue"],
        exit_status=1,
    )
    EngineStart.objects.create(engine=engine, number=2, revision=engine.revision)
    api.post(f"engines/{engine.pk}/start/")
    with django_assert_num_queries(3):
        rows = api.get(f"engines/{engine.pk}/starts/").json()["results"]
    assert [row["number"] for row in rows] == [2, 1]
    assert "topsecretvalue" not in str(rows)
    moves = api.get(f"engines/{engine.pk}/transitions/").json()["results"]
    assert [(move["from_state"], move["to_state"]) for move in moves] == [("stopped", "starting")]
    assert moves[0]["operation"] == str(Operation.objects.get().uuid)


def test_the_log_comes_by_ranges_of_whole_characters(api, tmp_path):
    data = "zero €uro\nsecond line\n".encode()
    engine = local_engine(tmp_path, data)
    whole = api.get(f"engines/{engine.pk}/log/").json()
    assert (whole["text"], whole["size"], whole["offset"]) == (data.decode(), len(data), 0)
    text, offset = "", 0
    while offset < len(data):
        piece = api.get(f"engines/{engine.pk}/log/?offset={offset}&bytes=4").json()
        assert piece["next_offset"] > offset
        text, offset = text + piece["text"], piece["next_offset"]
    assert text == data.decode()
    tail = api.get(f"engines/{engine.pk}/log/?bytes=5").json()
    assert (tail["text"], tail["next_offset"]) == ("line\n", len(data))
    past = api.get(f"engines/{engine.pk}/log/?offset=1000").json()
    assert (past["text"], past["next_offset"], past["size"]) == ("", 1000, len(data))
    assert_problem(api.get(f"engines/{engine.pk}/log/?offset=-1"), 400, "invalid", "offset")
    assert_problem(api.get(f"engines/{engine.pk}/log/?start=7"), 404, "no_log")


def test_a_host_that_cannot_be_reached_is_said(api, engine, monkeypatch):
    from engines import logs
    from engines.ssh.errors import HostUnreachable

    def fail(host):
        raise HostUnreachable("No route.", remedy="Check the network.")

    monkeypatch.setattr(logs, "session_for", fail)
    EngineStart.objects.create(engine=engine, number=1, log_path="/x/log")
    problem = assert_problem(api.get(f"engines/{engine.pk}/log/"), 502, "host_unreachable")
    assert problem["remedy"] == "Check the network."


def test_what_it_says_now_is_null_without_data(api, engine):
    body = api.get(f"engines/{engine.pk}/metrics/").json()
    assert set(body.values()) == {None}
    SampleStore().write([Sample(engine.pk, timezone.now(), {"kv_usage_ratio": 0.5}, {})])
    body = api.get(f"engines/{engine.pk}/metrics/").json()
    assert (body["kv_usage"], body["running"]) == (0.5, None)
    assert body["taken_at"]


def test_its_metrics_over_time(api, engine):
    now = timezone.now()
    SampleStore().write(
        [
            Sample(
                engine.pk, now - timedelta(seconds=ago), {"kv_usage_ratio": usage, "requests_running": 1}, {}
            )
            for ago, usage in ((10, 0.25), (5, 0.5))
        ]
    )
    body = api.get(f"engines/{engine.pk}/metrics/series/?range=15m&metrics=kv_usage_ratio,ttft_p95").json()
    assert set(body["series"]) == {"kv_usage_ratio", "ttft_p95"}
    line = body["series"]["kv_usage_ratio"]
    assert [value for value in line["values"] if value is not None] == [0.25, 0.5]
    assert len(line["times"]) == len(line["values"])


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("metrics=kv_usage", "metrics"),
        ("metrics=,", "metrics"),
        ("range=1y", "range"),
        ("from=yesterday", "from"),
        ("rnage=3h", "rnage"),
    ],
)
def test_a_series_that_cannot_be_shown_is_refused(api, engine, query, field):
    assert_problem(api.get(f"engines/{engine.pk}/metrics/series/?{query}"), 400, "invalid", field)
