"""Profiles and revisions over the API."""

from __future__ import annotations

import pytest

from engines.models import Profile, Revision
from kvadmin.models import AuditEvent
from tests.support.api import Api, assert_problem
from tests.support.factories import ProfileFactory, RevisionFactory

NEW = {
    "name": "qwen3-8b-v1",
    "model": "Qwen/Qwen3-8B",
    "served_names": ["qwen3-8b"],
    "values": {"max_model_len": "32k", "gpu_memory_utilization": 0.9},
    "environment": {"VLLM_LOGGING_LEVEL": "INFO"},
    "secrets": {"HF_TOKEN": "hf_verysecretvalue"},
}


@pytest.fixture
def api(operator):
    return Api(operator)


def test_it_makes_a_profile(api):
    response = api.post("profiles/", NEW)
    assert response.status_code == 201, response.content
    body = response.json()
    assert (body["name"], body["latest_number"], body["model"]) == ("qwen3-8b-v1", 1, "Qwen/Qwen3-8B")
    latest = body["latest"]
    assert latest["values"]["max_model_len"] == 32000
    assert latest["secret_names"] == ["HF_TOKEN"]
    assert "vllm serve Qwen/Qwen3-8B" in latest["command"]
    assert "verysecret" not in response.content.decode()
    assert Revision.objects.get().secrets == {"HF_TOKEN": "hf_verysecretvalue"}
    event = AuditEvent.objects.get(verb="profile.save")
    assert (event.source, event.token_id) == ("api", api.token.pk)


def test_wrong_values_are_named(api):
    problem = assert_problem(
        api.post("profiles/", {**NEW, "values": {"max_model_len": "long"}}), 400, "invalid", "max_model_len"
    )
    assert problem["errors"]["max_model_len"][0]
    assert not Profile.objects.exists()


def test_it_saves_the_next_revision_and_keeps_secrets(api):
    profile = api.post("profiles/", NEW).json()["id"]
    spec = {name: NEW[name] for name in ("model", "served_names", "environment")}
    change = {**spec, "values": {"max_model_len": 16384}, "secrets": {"HF_TOKEN": None}, "based_on": 1}
    response = api.post(f"profiles/{profile}/revisions/", change)
    assert response.status_code == 201, response.content
    assert response.json()["number"] == 2
    assert Revision.objects.get(number=2).secrets == {"HF_TOKEN": "hf_verysecretvalue"}
    assert api.post(f"profiles/{profile}/revisions/", {**change, "based_on": 2}).status_code == 200
    assert_problem(
        api.post(f"profiles/{profile}/revisions/", {**change, "values": {}}), 409, "revision_conflict"
    )
    assert Revision.objects.count() == 2


def test_it_renames_without_a_new_revision(api):
    profile = api.post("profiles/", NEW).json()["id"]
    response = api.patch(f"profiles/{profile}/", {"name": "qwen3-8b-v2"})
    assert response.json()["name"] == "qwen3-8b-v2"
    assert Revision.objects.get().secrets == {"HF_TOKEN": "hf_verysecretvalue"}


def test_it_lists_and_compares_revisions(api):
    profile = api.post("profiles/", NEW).json()["id"]
    api.post(f"profiles/{profile}/revisions/", {"model": "Qwen/Qwen3-8B", "values": {"max_num_seqs": 64}})
    rows = api.get(f"profiles/{profile}/revisions/").json()["results"]
    assert [row["number"] for row in rows] == [2, 1]
    assert api.get(f"profiles/{profile}/revisions/1/").json()["number"] == 1
    assert_problem(api.get(f"profiles/{profile}/revisions/9/"), 404, "not_found")
    found = api.get(f"profiles/{profile}/compare/?left=1&right=2").json()["differences"]
    assert {"field": "values.max_num_seqs", "left": None, "right": 64} in found
    assert {"field": "secret_names", "left": ["HF_TOKEN"], "right": []} in found
    assert_problem(api.get(f"profiles/{profile}/compare/?left=1"), 400, "invalid", "right")


def test_it_previews_the_command_for_readers_without_saving(viewer):
    spec = {name: value for name, value in NEW.items() if name != "name"}
    response = Api(viewer, "read").post("profiles/preview-command/", spec)
    assert response.status_code == 200, response.content
    assert "--max-model-len 32000" in response.json()["command"]
    assert "verysecret" not in response.content.decode()
    assert not Profile.objects.exists()


def test_it_checks_a_profile_against_a_version(viewer):
    spec = {"model": "m", "values": {"swap_space": 4, "kv_cache_dtype": "nvfp4"}, "vllm_version": "0.10.9"}
    told = Api(viewer, "read").post("profiles/preview-command/", spec).json()
    assert told["flags_of"] == "0.10.2"
    found = {one["code"]: one for one in told["findings"]}
    assert found["choice_unknown_here"]["severity"] == "error"
    assert found["choice_unknown_here"]["mends"][-1]["sets"] == {"kv_cache_dtype": ""}
    assert "0.10.9" in found["release_unknown"]["text"]
    told = Api(viewer, "read").post("profiles/preview-command/", {**spec, "vllm_version": "0.33.0"}).json()
    assert "--swap-space" not in told["command"]
    assert [one["code"] for one in told["findings"]] == ["flag_gone"]


def test_it_archives_and_restores(api):
    profile = api.post("profiles/", NEW).json()["id"]
    assert api.post(f"profiles/{profile}/archive/").json()["archived_at"]
    assert_problem(api.post(f"profiles/{profile}/archive/"), 409, "profile_archived")
    assert api.get("profiles/?archived=false").json()["results"] == []
    assert len(api.get("profiles/?archived=true").json()["results"]) == 1
    assert api.post(f"profiles/{profile}/restore/").json()["archived_at"] is None


def test_a_list_costs_the_same_for_many(api, django_assert_num_queries):
    for _ in range(3):
        RevisionFactory(profile=ProfileFactory())
    api.get("profiles/")
    with django_assert_num_queries(2):
        assert len(api.get("profiles/").json()["results"]) == 3
    profile = Profile.objects.first()
    RevisionFactory.create_batch(5, profile=profile)
    with django_assert_num_queries(3):
        assert len(api.get(f"profiles/{profile.pk}/revisions/").json()["results"]) == 6
