"""Saving routes: names are unique over aliases too, targets keep their keys, engines join by themselves."""

from __future__ import annotations

import json
import threading

import pytest
from django.db import connection

from engines.actions.stop_engine import StopEngine
from engines.choices import EngineState, OperationKind
from engines.models import Engine
from kvadmin.actions import Actor, Conflict, Denied, Invalid
from kvadmin.models import AuditEvent
from routes.actions.export_routes import ExportRoutes
from routes.actions.import_routes import ImportRoutes
from routes.actions.remove_route import RemoveRoute
from routes.actions.route_input import TargetInput
from routes.actions.save_route import SaveRoute
from routes.models import Route, Target
from tests.routes.test_playbook import ONE
from tests.support.factories import EngineFactory
from tests.support.route_factories import OutsideTargetFactory, RouteFactory, TargetFactory

pytestmark = pytest.mark.django_db


def by(user) -> Actor:
    return Actor(user=user, source="web")


def save(user, route=None, targets=None, **values) -> Route:
    return SaveRoute(by(user), route, values, targets).run()


def test_an_operator_makes_a_route_with_targets(operator):
    engine = EngineFactory()
    route = save(
        operator,
        name=" qwen3-8b-v1 ",
        aliases=["default", "default", "qwen3-8b-v1"],
        max_tokens=8192,
        price={"currency": "eur", "prompt": 0.2, "completion": 0.6, "cached": None},
        targets=[
            TargetInput(engine=engine, weight=3),
            TargetInput(base_url="https://example.org/v1/", api_key="sk-outside-1", model="qwen"),
        ],
    )
    assert (route.name, route.aliases, route.max_tokens_rule) == ("qwen3-8b-v1", ["default"], "refuse")
    assert route.price == {"currency": "EUR", "prompt": 0.2, "completion": 0.6}
    ours, outside = route.targets.all()
    assert (ours.engine, ours.weight, ours.served_name) == (engine, 3, "qwen3-8b-v1")
    assert (outside.base_url, outside.api_key, outside.served_name) == (
        "https://example.org",
        "sk-outside-1",
        "qwen",
    )
    event = AuditEvent.objects.get(verb="route.save")
    assert "sk-outside-1" not in json.dumps(event.after)
    assert event.after["targets"][1]["has_key"] is True
    with connection.cursor() as cursor:
        cursor.execute("SELECT api_key FROM routes_target WHERE base_url <> ''")
        assert "sk-outside-1" not in cursor.fetchone()[0]


@pytest.mark.parametrize("person", ["viewer", "team_owner", "outsider"])
def test_nobody_below_an_operator_changes_routes(person, request):
    user, route = request.getfixturevalue(person), RouteFactory()
    for action in (
        SaveRoute(by(user), None, {"name": "x"}),
        RemoveRoute(by(user), route),
        ImportRoutes(by(user), "[]"),
    ):
        with pytest.raises(Denied):
            action.run()
    assert Route.objects.visible_to(user).exists() is (person == "viewer")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "two words"}, "name"),
        ({"name": "taken"}, "name"),
        ({"name": "taken-too"}, "name"),
        ({"aliases": ["taken"]}, "aliases"),
        ({"aliases": ["two words"]}, "aliases"),
        ({"policy": "random"}, "policy"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens_rule": "cut"}, "max_tokens_rule"),
        ({"context_length": 2**31}, "context_length"),
        ({"connect_s": 0}, "connect_s"),
        ({"total_s": float("nan")}, "total_s"),
        ({"idle_s": 1e9}, "idle_s"),
        ({"price": {"prompt": 1}}, "price"),
        ({"price": {"currency": "EUR", "prompt": -1}}, "price"),
        ({"price": {"currency": "EUR", "per_token": 1}}, "price"),
        ({"description": "x" * 1001}, "description"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_field(values, field, operator):
    RouteFactory(name="taken", aliases=["taken-too"])
    with pytest.raises(Invalid) as refused:
        save(operator, **{"name": "qwen3-8b-v1", **values})
    assert list(refused.value.errors) == [field]


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ({"base_url": ""}, "targets.0.base_url"),
        ({"base_url": "http://vllm:8000/v1/models"}, "targets.0.base_url"),
        ({"base_url": "http://vllm:8000", "weight": 0}, "targets.0.weight"),
        ({"base_url": "http://vllm:8000", "api_key": "two words"}, "targets.0.api_key"),
        ({"base_url": "http://vllm:8000", "model": "x" * 301}, "targets.0.model"),
        ({"base_url": "http://vllm:8000", "id": 999}, "targets.0"),
    ],
)
def test_a_wrong_target_is_named_by_its_place(target, field, operator):
    with pytest.raises(Invalid) as refused:
        save(operator, name="qwen3-8b-v1", targets=[TargetInput(**target)])
    assert list(refused.value.errors) == [field]
    assert not Route.objects.exists()


def test_an_engine_is_a_target_once(operator):
    engine = EngineFactory()
    with pytest.raises(Invalid):
        save(operator, name="qwen3-8b-v1", targets=[TargetInput(engine=engine), TargetInput(engine=engine)])


def test_a_stored_key_stays_until_another_is_given_and_never_goes_to_another_address(operator):
    target = OutsideTargetFactory(api_key="sk-outside-1", base_url="http://vllm:8000")
    route = target.route
    save(operator, route, [TargetInput(id=target.pk, base_url="http://vllm:8000/v1", weight=2)])
    target.refresh_from_db()
    assert (target.api_key, target.weight) == ("sk-outside-1", 2)
    with pytest.raises(Invalid) as refused:
        save(operator, route, [TargetInput(id=target.pk, base_url="http://elsewhere:8000")])
    assert list(refused.value.errors) == ["targets.0.api_key"]
    save(operator, route, [TargetInput(id=target.pk, base_url="http://elsewhere:8000", api_key="EMPTY")])
    target.refresh_from_db()
    assert target.api_key == ""


def test_what_is_not_given_stays(operator):
    target = TargetFactory()
    route = target.route
    save(operator, route, enabled=False, description="off for now")
    route.refresh_from_db()
    assert (route.enabled, list(route.targets.all())) == (False, [target])
    rows = AuditEvent.objects.count()
    save(operator, route, enabled=False)
    assert AuditEvent.objects.count() == rows
    save(operator, route, [])
    assert not route.targets.exists()


def test_another_key_alone_is_audited_without_it(operator):
    target = OutsideTargetFactory(api_key="sk-outside-1")
    save(
        operator, target.route, [TargetInput(id=target.pk, base_url=target.base_url, api_key="sk-outside-2")]
    )
    assert "sk-outside" not in str(vars(AuditEvent.objects.get(verb="route.save")))


def test_fallbacks_do_not_lead_in_a_circle(operator):
    small = save(operator, name="qwen3-8b-v1")
    large = save(operator, name="qwen3-32b-v1", fallback=small)
    for route in (small, large):
        with pytest.raises(Invalid) as refused:
            save(operator, route, fallback=large)
        assert list(refused.value.errors) == ["fallback"]


@pytest.mark.django_db(transaction=True)
def test_two_routes_saved_at_once_do_not_share_a_name(operator):
    begin, outcomes = threading.Barrier(2), []

    def work(name: str, aliases: list[str]) -> None:
        begin.wait()
        try:
            outcomes.append(save(operator, name=name, aliases=aliases).name)
        except Invalid as error:
            outcomes.append(sorted(error.errors)[0])
        finally:
            connection.close()

    threads = [
        threading.Thread(target=work, args=args) for args in (("qwen3-8b-v1", []), ("other", ["qwen3-8b-v1"]))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Route.objects.count() == 1
    assert sorted(outcomes) in [["aliases", "qwen3-8b-v1"], ["name", "other"]]


def test_hints_and_warnings_do_not_refuse(operator):
    action = SaveRoute(by(operator), None, {"name": "Assistant", "max_tokens": 1})
    action.run()
    assert [note.code for note in action.hints] == ["name_has_capitals", "name_has_no_size", "no_target"]


def ready(engine: Engine) -> None:
    assert engine.move(EngineState.READY, only_from=(EngineState.STOPPED,))


def test_an_engine_that_becomes_ready_joins_by_itself(django_capture_on_commit_callbacks):
    waiting = RouteFactory(name="qwen3-8b", auto_join=True)
    aliased = RouteFactory(name="chat", aliases=["qwen3-8b-x"], auto_join=True)
    RouteFactory(name="qwen3-8b-y", auto_join=False)
    engine = EngineFactory(served_names=["qwen3-8b", "qwen3-8b-x", "qwen3-8b-y"])
    with django_capture_on_commit_callbacks(execute=True):
        ready(engine)
    assert {target.route for target in engine.targets.all()} == {waiting, aliased}
    assert AuditEvent.objects.get(verb="route.join").actor_name == "kvadmin"
    engine.targets.update(enabled=False)
    with django_capture_on_commit_callbacks(execute=True):
        assert engine.move(EngineState.STOPPED, only_from=(EngineState.READY,))
        ready(engine)
    assert engine.targets.count() == 2
    assert not engine.targets.filter(enabled=True).exists()


def test_an_engine_of_another_name_does_not_join(django_capture_on_commit_callbacks):
    RouteFactory(name="qwen3-8b", auto_join=True)
    engine = EngineFactory(served_names=["qwen3-32b"])
    with django_capture_on_commit_callbacks(execute=True):
        ready(engine)
    assert not engine.targets.exists()


def test_switching_it_on_takes_the_ready_ones(operator):
    engine = EngineFactory(served_names=["qwen3-8b"], observed=EngineState.READY)
    EngineFactory(served_names=["qwen3-8b"])
    route = save(operator, name="qwen3-8b", auto_join=True)
    assert [target.engine for target in route.targets.all()] == [engine]


def test_stopping_an_engine_that_callers_reach_drains_it_first(operator):
    target = TargetFactory(engine__observed=EngineState.READY)
    operation = StopEngine(by(operator), target.engine, grace_s=7).run()
    assert (operation.kind, operation.parameters["grace_s"]) == (OperationKind.DRAIN, 7)
    target.engine.refresh_from_db()
    assert target.engine.observed == EngineState.DRAINING


@pytest.mark.parametrize("how", ["no route", "route off", "target off", "at once"])
def test_an_engine_without_callers_is_stopped(how, operator):
    engine = EngineFactory(observed=EngineState.READY)
    if how != "no route":
        TargetFactory(engine=engine, route__enabled=how != "route off", enabled=how != "target off")
    operation = StopEngine(by(operator), engine, at_once=how == "at once").run()
    assert operation.kind == OperationKind.STOP


def test_import_links_our_own_engines_and_keeps_the_rest_outside(operator):
    engine = EngineFactory(port=8000)
    text = json.dumps([{**ONE, "base_url": f"{engine.base_url}/v1"}, ONE])
    done = ImportRoutes(by(operator), text).run()
    assert [route.name for route in done.created] == ["qwen3-8b"]
    route = Route.objects.get()
    assert (route.max_tokens, route.total_s, route.first_byte_s) == (32768, 120.0, 120.0)
    assert [target.engine for target in route.targets.all()] == [engine, None]
    assert ExportRoutes(by(operator)).run() == [
        {name: value for name, value in {**ONE, "base_url": url}.items() if name != "api_key"}
        for url in (f"{engine.base_url}/v1", ONE["base_url"])
    ]
    rows = AuditEvent.objects.count()
    assert [route.name for route in ImportRoutes(by(operator), text).run().unchanged] == ["qwen3-8b"]
    assert AuditEvent.objects.count() == rows


def test_import_is_all_or_nothing(operator):
    RouteFactory(name="other", aliases=["qwen3-32b-awq"])
    for text, refusal in (
        (json.dumps([ONE, {**ONE, "base_url": "vllm"}]), Invalid),
        (json.dumps([ONE, {**ONE, "model_name": "qwen3-32b-awq"}]), Conflict),
        (json.dumps([ONE, {**ONE, "max_tokens": 1, "base_url": "http://other:8000"}]), Invalid),
        ("not JSON", Invalid),
    ):
        with pytest.raises(refusal):
            ImportRoutes(by(operator), text).run()
    assert Route.objects.count() == 1


def test_import_keeps_a_stored_key_that_the_file_leaves_out(operator):
    ImportRoutes(by(operator), json.dumps({**ONE, "api_key": "sk-outside-1"})).run()
    without = json.dumps({**ONE, "api_key": "EMPTY", "timeout": 60})
    ImportRoutes(by(operator), without, replace=True).run()
    assert (Target.objects.get().api_key, Route.objects.get().total_s) == ("sk-outside-1", 60.0)
    assert "sk-outside-1" not in str([vars(event) for event in AuditEvent.objects.all()])


def test_a_route_is_removed_and_its_engine_stays(operator):
    target = TargetFactory()
    RemoveRoute(by(operator), target.route).run()
    assert not Target.objects.exists()
    assert Engine.objects.filter(pk=target.engine_id).exists()
