"""Pages of routes, as each kind of person."""

from __future__ import annotations

import json

import pytest

from engines.choices import EngineState
from routes.models import Route, Target
from tests.routes.test_playbook import ONE
from tests.support.factories import EngineFactory
from tests.support.route_factories import KeyFactory, OutsideTargetFactory, RouteFactory, TargetFactory

pytestmark = pytest.mark.django_db

SETTINGS = {
    "name": "qwen3-8b-v1",
    "enabled": "on",
    "policy": "prefix_affinity",
    "max_tokens_rule": "refuse",
    "connect_s": "5",
    "first_byte_s": "120",
    "idle_s": "60",
    "total_s": "3600",
}


def targets(*rows: dict[str, str], initial: int = 0) -> dict[str, str]:
    data = {"targets-TOTAL_FORMS": str(len(rows)), "targets-INITIAL_FORMS": str(initial)}
    for number, row in enumerate(rows):
        data |= {
            f"targets-{number}-{name}": value
            for name, value in {"weight": "1", "enabled": "on", **row}.items()
        }
    return data


def text_of(response) -> str:
    return response.content.decode()


@pytest.mark.parametrize(
    ("person", "sees", "changes"),
    [
        ("administrator", 200, 200),
        ("operator", 200, 200),
        ("viewer", 200, 403),
        ("team_owner", 403, 403),
        ("outsider", 403, 403),
    ],
)
def test_who_sees_and_who_changes(person, sees, changes, client, request):
    client.force_login(request.getfixturevalue(person))
    target = OutsideTargetFactory(api_key="sk-outside-1")
    url = target.route.get_absolute_url()
    for address in ("/routes/", url, f"{url}export/", "/routes/export/"):
        response = client.get(address)
        assert response.status_code == sees, address
        assert "sk-outside-1" not in text_of(response)
    for address in ("/routes/add/", f"{url}edit/", "/routes/import/"):
        response = client.get(address)
        assert response.status_code == changes, address
        assert "sk-outside-1" not in text_of(response)
    if changes != 200:
        for address in ("/routes/add/", f"{url}edit/", f"{url}off/", f"{url}remove/", "/routes/import/"):
            assert client.post(address, {**SETTINGS, **targets(), "text": "[]"}).status_code == 403
        assert Route.objects.get().enabled
    if sees == 200:
        assert (f"{url}edit/" in text_of(client.get(url))) is (changes == 200)


def test_an_operator_makes_a_route(operator, client):
    engine = EngineFactory(observed=EngineState.READY, served_names=["Qwen/Qwen3-8B"], max_model_len=8192)
    client.force_login(operator)
    response = client.post(
        "/routes/add/",
        {
            **SETTINGS,
            "aliases": "default\nquick\n",
            "max_tokens": "32768",
            "currency": "eur",
            "prompt": "0.2",
            **targets(
                {"engine": str(engine.pk), "weight": "3"},
                {"base_url": "https://example.org/v1", "api_key": "sk-outside-1", "model": "qwen"},
                {},
            ),
        },
        follow=True,
    )
    assert response.status_code == 200
    route = Route.objects.get()
    assert (route.aliases, route.price) == (["default", "quick"], {"currency": "EUR", "prompt": 0.2})
    assert [(str(target), target.weight) for target in route.targets.all()] == [
        (engine.name, 3),
        ("https://example.org", 1),
    ]
    page = text_of(response)
    assert "takes only 8192, prompt included" in page and "renamed" in page and "with a key" in page
    assert "sk-outside-1" not in page


def test_a_mistake_stands_at_its_field_and_nothing_is_lost(operator, client):
    client.force_login(operator)
    RouteFactory(name="taken")
    response = client.post(
        "/routes/add/",
        {
            **SETTINGS,
            "name": "taken",
            "prompt": "1",
            **targets({"base_url": "vllm-b:8000", "model": "typed-name"}),
        },
    )
    assert response.status_code == 400
    page = text_of(response)
    assert "Another route has this name or alias" in page
    assert "has to begin with http://" in page
    assert "Give the price&#x27;s currency" in page
    assert "vllm-b:8000" in page and "typed-name" in page
    response = client.post(
        "/routes/add/", {**SETTINGS, "max_tokens": "many", **targets({"base_url": "http://a"})}
    )
    assert response.status_code == 400
    assert Route.objects.count() == 1


def test_an_edit_keeps_a_stored_key_and_takes_targets_out(operator, client):
    kept = OutsideTargetFactory(api_key="sk-outside-1", base_url="http://vllm:8000")
    gone = TargetFactory(route=kept.route)
    client.force_login(operator)
    url = kept.route.get_absolute_url()
    assert "stored; leave empty to keep it" in text_of(client.get(f"{url}edit/"))
    rows = (
        {"id": str(kept.pk), "base_url": "http://vllm:8000/v1", "weight": "5"},
        {"id": str(gone.pk), "engine": str(gone.engine_id), "DELETE": "on"},
    )
    response = client.post(f"{url}edit/", {**SETTINGS, "name": kept.route.name, **targets(*rows, initial=2)})
    assert response.status_code == 302, text_of(response)
    target = Target.objects.get()
    assert (target.pk, target.api_key, target.weight) == (kept.pk, "sk-outside-1", 5)
    rows = ({"id": str(kept.pk), "base_url": "http://elsewhere:8000"},)
    response = client.post(f"{url}edit/", {**SETTINGS, "name": kept.route.name, **targets(*rows, initial=1)})
    assert "The address changed" in text_of(response)


def test_on_off_and_gone(operator, client):
    route = TargetFactory(engine__observed=EngineState.READY).route
    client.force_login(operator)
    url = route.get_absolute_url()
    assert "Serving" in text_of(client.get(url))
    assert "The route is off" in text_of(client.post(f"{url}off/", follow=True))
    assert "The route is on" in text_of(client.post(f"{url}on/", follow=True))
    client.post(f"{url}remove/")
    assert not Route.objects.exists()


def test_the_list_shows_states_and_warnings(viewer, client):
    RouteFactory(name="empty-8b-v1")
    target = TargetFactory(
        route__name="ready-8b-v1", route__aliases=["quick"], engine__observed=EngineState.READY
    )
    client.force_login(viewer)
    page = text_of(client.get("/routes/"))
    assert "No target" in page and "1 warning" in page and "Serving" in page
    for text in ("quick", target.engine.name, "ready-8"):
        page = text_of(client.get(f"/routes/?q={text}"))
        assert "ready-8b-v1" in page and "empty-8b-v1" not in page


def test_the_playbooks_json_comes_in_and_goes_out(operator, client):
    client.force_login(operator)
    wrong = json.dumps([ONE, {**ONE, "base_url": "vllm"}])
    response = client.post("/routes/import/", {"text": wrong})
    assert response.status_code == 400
    assert "Entry 2 (qwen3-8b)" in text_of(response)
    response = client.post("/routes/import/", {"text": json.dumps(ONE)}, follow=True)
    assert "1 route made" in text_of(response)
    differing = json.dumps({**ONE, "timeout": 60})
    assert "exist and differ" in text_of(client.post("/routes/import/", {"text": differing}))
    response = client.post("/routes/import/", {"text": differing, "replace": "on"}, follow=True)
    assert "1 changed" in text_of(response)
    exported = client.get(f"{Route.objects.get().get_absolute_url()}export/")
    assert exported["Content-Disposition"] == 'attachment; filename="qwen3-8b.json"'
    assert json.loads(exported.content)[0]["timeout"] == 60


def test_a_routes_page_counts_its_callers(viewer, client):
    route = RouteFactory()
    KeyFactory(models=[route.name])
    KeyFactory()
    client.force_login(viewer)
    page = text_of(client.get(route.get_absolute_url()))
    assert "1 key names this model" in page and "1 key may call every model" in page


@pytest.mark.parametrize("n", [3, 12])
def test_the_list_costs_the_same_for_many_routes(n, viewer, client, django_assert_max_num_queries):
    for _number in range(n):
        TargetFactory()
    client.force_login(viewer)
    client.get("/routes/")
    with django_assert_max_num_queries(14):
        client.get("/routes/")
