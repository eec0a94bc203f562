import pytest
from django.urls import reverse
from django.utils.html import escape

from engines.choices import EngineState, OperationKind, OperationState, StepState
from engines.models import Engine, EngineStart, Operation
from engines.operations.begin import begin_operation
from kvadmin.actions import Actor
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory, RevisionFactory
from tests.support.route_factories import TargetFactory

pytestmark = pytest.mark.django_db

PAGES = ["engine_detail", "engine_state", "engine_operations", "engine_starts", "engine_edit", "engine_log"]


@pytest.fixture(autouse=True)
def quiet_queue(monkeypatch):
    """Operations are created; nobody moves them on."""
    monkeypatch.setattr("engines.operations.begin._enqueue", lambda *_args: None)


@pytest.fixture
def engine():
    host = HostFactory()
    environment = EnvironmentFactory(host=host)
    return EngineFactory(host=host, environment=environment, name="qwen3-8b-v1")


@pytest.mark.parametrize("name", PAGES)
def test_a_member_and_a_stranger_get_nothing(client, outsider, engine, name):
    url = reverse(f"engines:{name}", args=[engine.pk])
    assert client.get(url).status_code == 302
    client.force_login(outsider)
    assert client.get(url).status_code == 403


@pytest.mark.parametrize("name", PAGES)
def test_an_operator_gets_every_page(client, operator, engine, name):
    client.force_login(operator)
    assert client.get(reverse(f"engines:{name}", args=[engine.pk])).status_code == 200


def test_a_viewer_reads_but_gets_no_button_and_no_edit_page(client, viewer, engine):
    client.force_login(viewer)
    page = client.get(reverse("engines:engine_detail", args=[engine.pk])).content.decode()
    assert f'action="{reverse("engines:engine_verb", args=[engine.pk, "start"])}"' not in page
    assert client.get(reverse("engines:engine_edit", args=[engine.pk])).status_code == 403
    assert client.post(reverse("engines:engine_verb", args=[engine.pk, "start"])).status_code == 403
    assert (
        client.post(reverse("engines:engine_operate"), {"engine": engine.pk, "verb": "start"}).status_code
        == 403
    )
    assert client.post(reverse("engines:engine_remove", args=[engine.pk])).status_code == 403
    assert Operation.objects.count() == 0


def test_start_begins_an_operation_and_shows_its_steps(client, operator, engine):
    client.force_login(operator)
    answer = client.post(reverse("engines:engine_verb", args=[engine.pk, "start"]), follow=True)
    operation = Operation.objects.get(engine=engine)
    assert (operation.kind, operation.requested_by) == (OperationKind.START, operator)
    page = answer.content.decode()
    for step in operation.steps.all():
        assert escape(step.label) in page


def test_a_second_start_is_told_what_is_under_way(client, operator, engine):
    client.force_login(operator)
    url = reverse("engines:engine_verb", args=[engine.pk, "start"])
    client.post(url)
    answer = client.post(url, follow=True)
    assert Operation.objects.count() == 1
    assert [message.level_tag for message in answer.context["messages"]] == ["error"]


@pytest.mark.parametrize(
    ("given", "kind"), [({}, OperationKind.DRAIN), ({"at_once": "1"}, OperationKind.STOP)]
)
def test_an_engine_with_callers_is_drained_unless_it_is_to_stop_at_once(
    client, operator, engine, given, kind
):
    engine.observed = EngineState.READY
    engine.save()
    client.force_login(operator)
    page = client.get(engine.get_absolute_url()).content.decode()
    assert "at_once" not in page
    assert "Stop the engine? Requests that are running are cut off." in page
    TargetFactory(engine=engine)
    page = client.get(engine.get_absolute_url()).content.decode()
    assert 'name="at_once"' in page
    assert "it finishes the requests it has first" in page
    client.post(reverse("engines:engine_verb", args=[engine.pk, "stop"]), given)
    assert Operation.objects.get(engine=engine).kind == kind


def test_an_unknown_verb_and_a_get_do_nothing(client, operator, engine):
    client.force_login(operator)
    assert client.post(reverse("engines:engine_verb", args=[engine.pk, "explode"])).status_code == 404
    assert client.get(reverse("engines:engine_verb", args=[engine.pk, "start"])).status_code == 405


def test_several_are_started_and_one_refusal_does_not_stop_the_rest(client, operator, engine):
    other = EngineFactory(host=engine.host, environment=engine.environment)
    running = EngineFactory(host=engine.host, environment=engine.environment, observed=EngineState.READY)
    client.force_login(operator)
    answer = client.post(
        reverse("engines:engine_operate"),
        {"engine": [engine.pk, running.pk, other.pk], "verb": "start"},
        follow=True,
    )
    begun = Operation.objects.all()
    assert {operation.engine_id for operation in begun} == {engine.pk, other.pk}
    assert len({operation.batch for operation in begun}) == 1
    assert any(running.name in str(message) for message in answer.context["messages"])


def test_choosing_none_is_told(client, operator):
    client.force_login(operator)
    answer = client.post(reverse("engines:engine_operate"), {"verb": "start"}, follow=True)
    assert [message.level_tag for message in answer.context["messages"]] == ["error"]


def test_the_state_part_is_204_until_the_operation_moves(client, operator, engine):
    operation = begin_operation(OperationKind.START, actor=Actor.system(), host=engine.host, engine=engine)
    client.force_login(operator)
    url = reverse("engines:engine_state", args=[engine.pk])
    mark = client.get(url).context["mark"]
    assert client.get(url, {"mark": mark}).status_code == 204
    operation.steps.filter(position=0).update(state=StepState.DONE, detail="fine")
    fresh = client.get(url, {"mark": mark})
    assert fresh.status_code == 200
    assert "fine" in fresh.content.decode()


def test_a_failed_engine_shows_reason_last_lines_and_exit_status(client, viewer, engine):
    start = EngineStart.objects.create(
        engine=engine,
        number=1,
        exit_status=2,
        last_lines="vllm: error: unrecognized arguments: --swap-space 8",
    )
    Engine.objects.filter(pk=engine.pk).update(
        observed=EngineState.FAILED, reason="vLLM does not know --swap-space.", current_start=start
    )
    client.force_login(viewer)
    page = client.get(reverse("engines:engine_detail", args=[engine.pk])).content.decode()
    assert "vLLM does not know --swap-space." in page
    assert "unrecognized arguments: --swap-space 8" in page
    assert "exit status 2" in page


def test_an_engine_is_made_in_the_browser(client, operator):
    host = HostFactory()
    environment = EnvironmentFactory(host=host)
    revision = RevisionFactory()
    client.force_login(operator)
    values = {
        "name": "qwen3-8b-v1",
        "revision": revision.pk,
        "host": host.pk,
        "environment": environment.pk,
        "port": 8000,
    }
    answer = client.post(reverse("engines:engine_add"), values)
    engine = Engine.objects.get(name="qwen3-8b-v1")
    assert answer.url == engine.get_absolute_url()
    assert (engine.port, engine.revision, engine.observed) == (8000, revision, EngineState.STOPPED)
    again = client.post(reverse("engines:engine_add"), {**values, "port": 8001})
    assert again.status_code == 422
    page = again.content.decode()
    assert "qwen3-8b-v1" in page
    assert Engine.objects.count() == 1


def test_an_environment_of_another_host_is_refused_and_the_page_can_tell(client, operator):
    mine, other = EnvironmentFactory(), EnvironmentFactory()
    revision = RevisionFactory()
    client.force_login(operator)
    page = client.get(reverse("engines:engine_add")).content.decode()
    for environment in (mine, other):
        assert f'<option value="{environment.pk}" data-host="{environment.host_id}">' in page
    values = {"name": "e", "host": mine.host_id, "revision": revision.pk, "environment": other.pk}
    answer = client.post(reverse("engines:engine_add"), values)
    assert answer.status_code == 422
    sentence = f"That vLLM environment is on another host: choose one of {mine.host.name}."
    assert sentence in answer.context["form"].errors["environment"][0]
    assert not Engine.objects.exists()


def test_a_running_engine_is_not_removed(client, operator, engine):
    Engine.objects.filter(pk=engine.pk).update(observed=EngineState.READY)
    client.force_login(operator)
    client.post(reverse("engines:engine_remove", args=[engine.pk]))
    assert Engine.objects.filter(pk=engine.pk).exists()
    Engine.objects.filter(pk=engine.pk).update(observed=EngineState.STOPPED)
    client.post(reverse("engines:engine_remove", args=[engine.pk]))
    assert not Engine.objects.filter(pk=engine.pk).exists()


def test_operations_are_listed_shown_and_cancelled(client, operator, viewer, outsider, engine):
    operation = begin_operation(
        OperationKind.START, actor=Actor(user=operator), host=engine.host, engine=engine
    )
    detail = reverse("engines:operation_detail", args=[operation.uuid])
    cancel = reverse("engines:operation_cancel", args=[operation.uuid])
    client.force_login(outsider)
    for url in (reverse("engines:operation_list"), detail):
        assert client.get(url).status_code == 403
    client.force_login(viewer)
    assert engine.name in client.get(reverse("engines:operation_list")).content.decode()
    assert client.get(detail).status_code == 200
    assert client.post(cancel).status_code == 403
    client.force_login(operator)
    client.post(cancel)
    operation.refresh_from_db()
    assert operation.cancel_requested or operation.state == OperationState.CANCELLED
