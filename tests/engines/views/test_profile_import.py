"""Profiles from what there is: an exported file, and the command of an adopted engine."""

from __future__ import annotations

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from engines.choices import Launcher
from engines.models import EngineStart, Profile
from tests.support.factories import EngineFactory, ProfileFactory, RevisionFactory

pytestmark = pytest.mark.django_db

SECRET = "hf_0123456789abcdefghij"
IMPORT = reverse("engines:profile_import")


@pytest.fixture
def revision():
    return RevisionFactory(
        profile=ProfileFactory(name="qwen3-8b-v1", description="The small one."),
        values={"max_model_len": 32768, "gpu_memory_utilization": 0.9},
        gpus="0,1",
        environment={"OMP_NUM_THREADS": "8"},
        secret_environment=json.dumps({"HF_TOKEN": SECRET}),
        extra_arguments="--seed 7",
    )


def exported(client, revision) -> str:
    address = reverse("engines:profile_export", args=[revision.profile_id, revision.number, "json"])
    return client.get(address).content.decode()


def test_an_exported_profile_comes_back_as_it_was(client, operator, revision):
    client.force_login(operator)
    text = exported(client, revision)
    assert SECRET not in text
    answer = client.post(IMPORT, {"file": SimpleUploadedFile("p.json", b"\xef\xbb\xbf" + text.encode())})
    html = answer.content.decode()
    assert "Enter the values of these secrets again: HF_TOKEN." in html
    draft = answer.context["draft"]
    assert (draft.name, draft.description) == ("qwen3-8b-v1", "The small one.")
    draft.name = "qwen3-8b-v2"
    for row in draft.variables:
        row.value = row.value or SECRET
    from kvadmin.actions import Actor

    made = draft.action(Actor(user=operator), None).run()
    assert made.latest.spec == revision.spec
    assert Profile.objects.count() == 2


def test_the_same_text_pasted_works_too(client, operator, revision):
    client.force_login(operator)
    answer = client.post(IMPORT, {"command": exported(client, revision)})
    assert answer.context["draft"].model == revision.model


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"model": "m",', "no whole JSON"),
        ("{}", "“model” is missing"),
        ('{"model": 7}', "“model” is missing or of another kind"),
        ('{"model": "m", "served_names": "m"}', "“served_names”"),
        ('{"model": "m", "values": []}', "“values”"),
        ('{"model": "m", "environment": {"A": 1}}', "“environment”"),
    ],
)
def test_something_else_is_refused_and_kept(client, operator, text, says):
    client.force_login(operator)
    answer = client.post(IMPORT, {"command": text})
    assert answer.status_code == 400
    assert says in answer.content.decode()
    assert answer.context["text"] == text


def test_what_is_not_known_is_named(client, operator):
    client.force_login(operator)
    text = json.dumps({"model": "m", "values": {"max_model_len": 4096, "from_2031": 1}, "colour": "red"})
    answer = client.post(IMPORT, {"command": text})
    assert "Not known here, and left out: colour, from_2031." in answer.content.decode()
    assert answer.context["draft"].values == {"max_model_len": "4096"}


def test_a_file_that_is_no_text_is_refused(client, operator):
    client.force_login(operator)
    answer = client.post(IMPORT, {"file": SimpleUploadedFile("p.json", b"\xff\xfe\x00")})
    assert answer.status_code == 400


@pytest.fixture
def adopted():
    engine = EngineFactory(name="old-one", revision=None)
    engine.current_start = EngineStart.objects.create(
        engine=engine,
        number=1,
        launcher=Launcher.ADOPTED,
        command=["/opt/vllm/bin/vllm", "serve", "Qwen/Qwen3-8B", "--port", "8003", "--max-model-len", "8192"],
    )
    engine.save()
    return engine


def test_an_adopted_engine_s_command_becomes_a_profile(client, operator, viewer, outsider, adopted):
    address = f"{IMPORT}?engine={adopted.pk}"
    for person, status in ((outsider, 403), (viewer, 403), (operator, 200)):
        client.force_login(person)
        assert client.get(address).status_code == status
    draft = client.get(address).context["draft"]
    assert (draft.model, draft.values) == ("Qwen/Qwen3-8B", {"max_model_len": "8192"})
    assert "old-one" in draft.note


def test_the_button_is_on_its_page_for_who_may(client, operator, viewer, adopted):
    for person, there in ((viewer, False), (operator, True)):
        client.force_login(person)
        page = client.get(adopted.get_absolute_url()).content.decode()
        assert (f"{IMPORT}?engine={adopted.pk}" in page) is there


def test_a_command_that_tells_nothing_asks_for_one(client, operator, adopted):
    EngineStart.objects.update(command=["VLLM::APIServer"])
    client.force_login(operator)
    answer = client.get(f"{IMPORT}?engine={adopted.pk}")
    assert answer.status_code == 400
    assert "no command that starts a vLLM server" in answer.content.decode()
    assert client.get(f"{IMPORT}?engine=999999").status_code == 404
