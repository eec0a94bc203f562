"""Routes over the API: operators change, viewers look, everybody else may not."""

from __future__ import annotations

import pytest

from engines.choices import EngineState
from routes.models import Route, Target
from tests.routes.test_playbook import ONE
from tests.support.api import Api, assert_problem
from tests.support.factories import EngineFactory
from tests.support.route_factories import OutsideTargetFactory, TargetFactory

pytestmark = pytest.mark.django_db


def test_an_operator_makes_and_changes_a_route(operator):
    engine = EngineFactory(observed=EngineState.READY, served_names=["Qwen/Qwen3-8B"], max_model_len=8192)
    api = Api(operator)
    response = api.post(
        "routes/",
        {
            "name": "qwen3-8b-v1",
            "aliases": ["default"],
            "max_tokens": 32768,
            "price": {"currency": "EUR", "prompt": 0.2},
            "targets": [
                {"engine": engine.pk, "weight": 2},
                {"base_url": "https://example.org/v1", "api_key": "sk-outside-1", "model": "qwen"},
            ],
        },
    )
    assert response.status_code == 201, response.content
    made = response.json()
    assert (made["state"], made["context"]) == ("serving", 8192)
    assert [row["served_name"] for row in made["targets"]] == ["Qwen/Qwen3-8B", "qwen"]
    assert [row["has_key"] for row in made["targets"]] == [False, True]
    assert "sk-outside-1" not in response.content.decode()
    assert any("32768" in text and "8192" in text for text in made["warnings"])
    outside = made["targets"][1]
    kept = {"id": outside["id"], "base_url": outside["base_url"], "model": "qwen2"}
    changed = api.patch(f"routes/{made['id']}/", {"targets": [kept], "max_tokens": None}).json()
    assert (changed["max_tokens"], changed["aliases"]) == (None, ["default"])
    target = Target.objects.get()
    assert (target.pk, target.api_key, target.model) == (outside["id"], "sk-outside-1", "qwen2")
    assert api.delete(f"routes/{made['id']}/").status_code == 204


def test_a_mistake_is_named_by_its_field(operator):
    api = Api(operator)
    new = {"name": "qwen3-8b-v1"}
    assert_problem(api.post("routes/", {"name": "two words"}), 400, "invalid", "name")
    assert_problem(api.post("routes/", {**new, "target": []}), 400, "invalid", "target")
    assert_problem(
        api.post("routes/", {**new, "targets": [{"base_url": "vllm"}]}), 400, "invalid", "targets.0.base_url"
    )
    assert_problem(api.post("routes/", {**new, "connect_s": 0}), 400, "invalid", "connect_s")
    assert not Route.objects.exists()


def test_a_viewer_looks(viewer):
    target = OutsideTargetFactory(api_key="sk-outside-1", route__aliases=["default"])
    api = Api(viewer)
    assert api.get("routes/?name=default").json()["results"][0]["id"] == target.route_id
    assert api.get("routes/?name=other").json()["results"] == []
    assert (
        api.get(f"routes/?engine={TargetFactory().engine_id}").json()["results"][0]["id"] != target.route_id
    )
    assert_problem(api.patch(f"routes/{target.route_id}/", {}), 403, "permission_denied")
    assert_problem(api.post("routes/import/", {"routes": ONE}), 403, "permission_denied")
    exported = api.get("routes/export/")
    assert "sk-outside-1" not in exported.content.decode()
    assert exported.json()[0]["base_url"].endswith("/v1")


@pytest.mark.parametrize("person", ["team_owner", "outsider"])
def test_others_may_not(person, request):
    target = TargetFactory()
    api = Api(request.getfixturevalue(person))
    assert_problem(api.get("routes/"), 403, "permission_denied")
    assert_problem(api.get(f"routes/{target.route_id}/"), 403, "permission_denied")


def test_the_playbooks_json_comes_in_as_it_stands(operator):
    api = Api(operator)
    done = api.post("routes/import/", {"routes": ONE})
    assert done.json() == {"created": ["qwen3-8b"], "changed": [], "unchanged": [], "notes": []}
    assert api.post("routes/import/", {"routes": [ONE]}).json()["unchanged"] == ["qwen3-8b"]
    assert_problem(api.post("routes/import/", {"routes": {**ONE, "timeout": 60}}), 409, "routes_exist")
    replaced = api.post("routes/import/", {"routes": {**ONE, "timeout": 60}, "replace": True})
    assert replaced.json()["changed"] == ["qwen3-8b"]
    assert_problem(api.post("routes/import/", {"routes": [1, "x"]}), 400, "invalid", "text")
