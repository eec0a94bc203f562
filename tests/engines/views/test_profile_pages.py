"""Pages of profiles: who may see them, what they show, and that no secret is ever in them."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse

from engines.models import Profile
from kvadmin.models import AuditEvent
from tests.engines.vllm.test_reading import REFERENCE, REFERENCE_SPEC
from tests.support.factories import EngineFactory, HostFactory, ProfileFactory, RevisionFactory

pytestmark = pytest.mark.django_db

SECRET = "hidden-value-of-a-secret"
TYPED = {"name": "qwen3-8b-v1", "model": "Qwen/Qwen3-8B", "served_names": "qwen3-8b-v1"}


@pytest.fixture
def profile():
    profile = ProfileFactory(name="qwen3-8b-v1", description="for the shop")
    RevisionFactory(
        profile=profile,
        number=1,
        served_names=["qwen3-8b-v1"],
        values={"max_model_len": 32768},
        secret_environment=json.dumps({"HF_TOKEN": SECRET}),
    )
    RevisionFactory(
        profile=profile,
        number=2,
        served_names=["qwen3-8b-v1"],
        values={"max_model_len": 16384, "enable_prefix_caching": True},
        environment={"VLLM_LOGGING_LEVEL": "INFO"},
        secret_environment=json.dumps({"HF_TOKEN": SECRET + "2"}),
        note="shorter",
    )
    return profile


def pages(profile: Profile) -> list[str]:
    pk = profile.pk
    return [
        reverse("engines:profile_list"),
        reverse("engines:profile_detail", args=[pk]),
        reverse("engines:profile_revision", args=[pk, 1]),
        reverse("engines:profile_compare", args=[pk]),
        reverse("engines:profile_export", args=[pk, 2, "sh"]),
        reverse("engines:profile_export", args=[pk, 2, "json"]),
    ]


def changing_pages(profile: Profile) -> list[str]:
    return [
        reverse("engines:profile_add"),
        f"{reverse('engines:profile_add')}?copy={profile.pk}",
        reverse("engines:profile_import"),
        reverse("engines:profile_edit", args=[profile.pk]),
        f"{reverse('engines:profile_edit', args=[profile.pk])}?revision=1",
    ]


def posts(profile: Profile) -> list[str]:
    return [
        reverse("engines:profile_add"),
        reverse("engines:profile_edit", args=[profile.pk]),
        reverse("engines:profile_preview"),
        reverse("engines:profile_import"),
        reverse("engines:profile_archive", args=[profile.pk]),
        reverse("engines:profile_restore", args=[profile.pk]),
    ]


def test_anonymous_people_sign_in_first(client, profile):
    for url in [*pages(profile), *changing_pages(profile)]:
        assert client.get(url).status_code == 302
    for url in posts(profile):
        assert client.post(url).status_code == 302


def test_an_outsider_sees_nothing(client, outsider, profile):
    client.force_login(outsider)
    for url in [*pages(profile), *changing_pages(profile)]:
        response = client.get(url)
        assert response.status_code == 403
        assert "Qwen/Qwen3-8B" not in response.content.decode()
    for url in posts(profile):
        assert client.post(url, TYPED).status_code == 403


def test_a_viewer_reads_and_changes_nothing(client, viewer, profile):
    client.force_login(viewer)
    for url in pages(profile):
        assert client.get(url).status_code == 200
    for url in changing_pages(profile):
        assert client.get(url).status_code == 403
    for url in posts(profile):
        assert client.post(url, TYPED).status_code == 403
    html = client.get(profile.get_absolute_url()).content.decode()
    assert reverse("engines:profile_edit", args=[profile.pk]) not in html
    assert profile.revisions.count() == 2


def test_no_page_holds_a_secret_or_inline_code(client, operator, profile):
    client.force_login(operator)
    for url in [*pages(profile), *changing_pages(profile)]:
        response = client.get(url)
        assert response.status_code == 200, url
        html = response.content.decode()
        assert SECRET not in html
        assert "style=" not in html
        assert "<script>" not in html


@pytest.mark.parametrize(
    "path", ["999999/", "999999/edit/", "999999/compare/", "1/revisions/77/", "99999999999999999999/"]
)
def test_what_is_not_there_is_404(client, operator, path):
    client.force_login(operator)
    assert client.get(f"/profiles/{path}").status_code == 404


def test_the_list_finds_by_name_and_model_and_counts_engines(client, viewer, profile):
    other = RevisionFactory(profile__name="other", model="meta/Llama").profile
    EngineFactory(revision=profile.latest)
    EngineFactory(revision=profile.revisions.get(number=1))
    client.force_login(viewer)
    html = client.get("/profiles/").content.decode()
    assert profile.name in html
    assert other.name in html
    assert '<td class="n">2</td>' in html
    html = client.get("/profiles/?q=llama").content.decode()
    assert profile.get_absolute_url() not in html
    assert other.get_absolute_url() in html
    assert "No profile matches" in client.get("/profiles/?q=nothing%00").content.decode()


def test_the_list_costs_the_same_for_many_profiles(client, viewer, profile, django_assert_max_num_queries):
    for _ in range(12):
        RevisionFactory()
    client.force_login(viewer)
    with django_assert_max_num_queries(9):
        client.get("/profiles/")


def test_an_archived_profile_is_on_its_own_list(client, operator, profile):
    client.force_login(operator)
    client.post(reverse("engines:profile_archive", args=[profile.pk]))
    assert profile.get_absolute_url() not in client.get("/profiles/").content.decode()
    assert profile.get_absolute_url() in client.get("/profiles/?archived=1").content.decode()
    client.post(reverse("engines:profile_restore", args=[profile.pk]))
    assert profile.get_absolute_url() in client.get("/profiles/").content.decode()


def test_archiving_one_in_use_says_which_engines(client, operator, profile):
    EngineFactory(revision=profile.latest, name="alpha")
    client.force_login(operator)
    response = client.post(reverse("engines:profile_archive", args=[profile.pk]), follow=True)
    assert "Engines use this profile: alpha." in response.content.decode()
    profile.refresh_from_db()
    assert profile.archived_at is None


def test_the_detail_shows_command_changes_and_engines(client, viewer, profile):
    engine = EngineFactory(revision=profile.revisions.get(number=1), name="alpha-engine")
    client.force_login(viewer)
    html = client.get(profile.get_absolute_url()).content.decode()
    assert "HF_TOKEN=&#x27;********&#x27; \\\nvllm serve Qwen/Qwen3-8B \\\n" in html
    assert "--max-model-len 16384" in html
    assert "Longest request: 32,768 → 16,384" in html
    assert "HF_TOKEN: ******** → another value" in html
    assert "shorter" in html
    assert engine.get_absolute_url() in html
    assert reverse("engines:engine_add") not in html


def test_an_operator_gets_from_a_revision_to_a_new_engine(client, operator, profile):
    client.force_login(operator)
    html = client.get(profile.get_absolute_url()).content.decode()
    assert f"{reverse('engines:engine_add')}?revision={profile.latest.pk}" in html


def test_an_older_revision_has_a_page(client, viewer, profile):
    client.force_login(viewer)
    html = client.get(reverse("engines:profile_revision", args=[profile.pk, 1])).content.decode()
    assert "Older revision" in html
    assert "--max-model-len 32768" in html


def test_a_comparison_marks_the_differences(client, viewer, profile):
    client.force_login(viewer)
    url = reverse("engines:profile_compare", args=[profile.pk])
    html = client.get(url, {"left": 1, "right": 2}).content.decode()
    assert "<del>32,768</del>" in html
    assert "<ins>16,384</ins>" in html
    assert "<ins>INFO</ins>" in html
    assert "<ins>another value</ins>" in html
    assert "Served names" not in html
    assert "Served names" in client.get(url, {"show": "all"}).content.decode()
    assert client.get(url, {"left": "x", "right": "99"}).status_code == 404


def test_an_export_is_a_command_or_json(client, viewer, profile):
    client.force_login(viewer)
    shell = client.get(reverse("engines:profile_export", args=[profile.pk, 2, "sh"]))
    assert shell["Content-Disposition"] == 'attachment; filename="qwen3-8b-v1-r2.sh"'
    assert "vllm serve Qwen/Qwen3-8B" in shell.content.decode()
    document = client.get(reverse("engines:profile_export", args=[profile.pk, 2, "json"])).json()
    assert document["values"] == {"max_model_len": 16384, "enable_prefix_caching": True}
    assert document["secret_names"] == ["HF_TOKEN"]


def test_a_profile_is_added(client, operator):
    client.force_login(operator)
    response = client.post(
        reverse("engines:profile_add"),
        {
            **TYPED,
            "max_model_len": "32K",
            "variable_name": ["VLLM_LOGGING_LEVEL", "HF_TOKEN", ""],
            "variable_value": ["INFO", SECRET, ""],
            "variable_kind": ["plain", "secret", "plain"],
            "variable_kept": ["no", "no", "no"],
            "extra_arguments": "--api-server-count 2",
        },
    )
    profile = Profile.objects.get()
    assert response.url == profile.get_absolute_url()
    revision = profile.latest
    assert revision.values == {"max_model_len": 32768}
    assert revision.environment == {"VLLM_LOGGING_LEVEL": "INFO"}
    assert revision.secrets == {"HF_TOKEN": SECRET}
    assert SECRET not in str(list(AuditEvent.objects.values()))
    assert "Revision 1 is saved." in client.get(response.url).content.decode()


def test_mistakes_lose_nothing_that_was_typed(client, operator):
    client.force_login(operator)
    response = client.post(
        reverse("engines:profile_add"),
        {
            **TYPED,
            "max_num_seqs": "many",
            "extra_arguments": "--port 9",
            "variable_name": ["A", "A", "HF_TOKEN"],
            "variable_value": ["1", "2", SECRET],
            "variable_kind": ["plain", "plain", "secret"],
            "variable_kept": ["no", "no", "no"],
        },
    )
    html = response.content.decode()
    assert response.status_code == 400
    assert response["Cache-Control"] == "no-store"
    for text in ('value="many"', "--port 9", "takes a whole number", "--port is set by kvadmin", 'value="2"'):
        assert text in html
    assert "A stands there twice." in html
    assert "Enter the values of the secrets again" in html
    assert SECRET not in html
    assert Profile.objects.count() == 0


def test_with_htmx_a_refusal_is_sentences_only(client, operator):
    client.force_login(operator)
    response = client.post(
        reverse("engines:profile_add"),
        {**TYPED, "model": "", "max_num_seqs": "many"},
        headers={"HX-Request": "true"},
    )
    html = response.content.decode()
    assert response.status_code == 400
    assert "<form" not in html
    assert 'id="note-max_num_seqs" hx-swap-oob="true"' in html
    assert "No model is given." in html


def test_with_htmx_a_save_goes_to_the_profile(client, operator):
    client.force_login(operator)
    response = client.post(reverse("engines:profile_add"), TYPED, headers={"HX-Request": "true"})
    assert response["HX-Redirect"] == Profile.objects.get().get_absolute_url()


def edit(client, profile: Profile, **changes):
    typed = {
        **TYPED,
        "based_on": "2",
        "max_model_len": "16384",
        "enable_prefix_caching": "on",
        "description": "for the shop",
        "variable_name": ["VLLM_LOGGING_LEVEL", "HF_TOKEN"],
        "variable_value": ["INFO", ""],
        "variable_kind": ["plain", "secret"],
        "variable_kept": ["no", "yes"],
    }
    return client.post(reverse("engines:profile_edit", args=[profile.pk]), {**typed, **changes}, follow=True)


def test_the_form_as_it_is_shown_changes_nothing(client, operator, profile):
    client.force_login(operator)
    html = edit(client, profile).content.decode()
    assert "Nothing was changed, so there is no new revision." in html
    assert profile.revisions.count() == 2


def test_a_blank_secret_stays(client, operator, profile):
    client.force_login(operator)
    edit(client, profile, max_model_len="8k", note="short")
    assert profile.latest.number == 3
    assert profile.latest.values == {"max_model_len": 8000, "enable_prefix_caching": True}
    assert profile.latest.secrets == {"HF_TOKEN": SECRET + "2"}


def test_a_stored_secret_cannot_be_made_plain(client, operator, profile):
    client.force_login(operator)
    response = edit(client, profile, variable_kind=["plain", "plain"])
    assert response.status_code == 400
    assert "HF_TOKEN was secret" in response.content.decode()
    assert SECRET not in response.content.decode()


def test_a_conflict_shows_both_and_can_be_saved_on_top(client, operator, profile):
    client.force_login(operator)
    RevisionFactory(
        profile=profile,
        number=3,
        served_names=["qwen3-8b-v1"],
        values={"max_model_len": 4096},
        created_by=operator,
        note="mine first",
        secret_environment=json.dumps({"HF_TOKEN": SECRET + "3"}),
    )
    response = edit(client, profile, max_model_len="8192")
    html = response.content.decode()
    assert response.status_code == 409
    assert "olga saved revision 3 of this profile meanwhile." in html
    assert "<del>4096</del>" in html
    assert "<ins>8192</ins>" in html
    assert 'value="8192"' in html
    assert 'name="based_on_now" value="3"' in html
    assert SECRET not in html
    assert "another value" not in html
    edit(client, profile, max_model_len="8192", based_on_now="3")
    assert profile.latest.number == 4
    assert profile.latest.values["max_model_len"] == 8192


def test_editing_from_an_older_revision_keeps_its_secrets(client, operator, profile):
    client.force_login(operator)
    old = profile.revisions.get(number=1)
    html = client.get(reverse("engines:profile_edit", args=[profile.pk]), {"revision": "1"}).content.decode()
    assert f'name="secrets_from" value="{old.pk}"' in html
    assert 'name="based_on" value="2"' in html
    assert 'value="32768"' in html
    edit(client, profile, max_model_len="32768", secrets_from=str(old.pk))
    assert profile.latest.secrets == {"HF_TOKEN": SECRET}


def test_a_copy_has_everything_but_the_name(client, operator, profile):
    client.force_login(operator)
    html = client.get(reverse("engines:profile_add"), {"copy": profile.pk}).content.decode()
    assert 'value="qwen3-8b-v1-copy"' in html
    assert 'value="16384"' in html
    assert 'value="HF_TOKEN"' in html
    assert f'name="secrets_from" value="{profile.latest.pk}"' in html
    assert 'name="based_on"' not in html


def test_the_preview_shows_the_command_and_sentences(client, operator):
    client.force_login(operator)
    response = client.post(
        reverse("engines:profile_preview"),
        {
            **TYPED,
            "gpu_memory_utilization": "0.97",
            "extra_arguments": "--api-key x",
            "variable_name": ["HF_TOKEN"],
            "variable_value": [SECRET],
            "variable_kind": ["secret"],
            "variable_kept": ["no"],
        },
        headers={"HX-Request": "true"},
    )
    html = response.content.decode()
    assert response["Cache-Control"] == "no-store"
    assert "vllm serve Qwen/Qwen3-8B" in html
    assert "--gpu-memory-utilization 0.97" in html
    assert "peaks run out of memory" in html
    assert "--api-key is set by kvadmin" in html
    assert "HF_TOKEN=&#x27;********&#x27;" in html
    assert SECRET not in html


def test_the_preview_of_an_empty_form_is_quiet(client, operator):
    client.force_login(operator)
    html = client.post(reverse("engines:profile_preview"), {}).content.decode()
    assert "vllm serve MODEL" in html
    assert "Before this can be saved" not in html


def test_the_picker_offers_models_of_hosts(client, operator, profile):
    HostFactory(
        name="h200-a",
        facts={
            "models": [
                {"path": "/c/models--a--b", "name": "a/b", "bytes": 1, "kind": "hf-cache"},
                {"path": "/data/models/x", "name": "x", "bytes": 1, "kind": "folder"},
            ]
        },
    )
    client.force_login(operator)
    html = client.get(reverse("engines:profile_add")).content.decode()
    assert '<option value="a/b">h200-a</option>' in html
    assert '<option value="/data/models/x">h200-a</option>' in html
    assert '<option value="Qwen/Qwen3-8B">in a profile</option>' in html


def test_the_reference_command_comes_in_and_can_be_saved(client, operator):
    client.force_login(operator)
    pasted = REFERENCE.replace("\n", " \\ ")
    html = client.post(reverse("engines:profile_import"), {"command": pasted}).content.decode()
    assert "Backslashes followed by a blank were read as line breaks" in html
    assert "--host 0.0.0.0 --port 8000: address and port are settled" in html
    assert 'value="Qwen/Qwen3-8B"' in html
    assert "There is no Qwen/Qwen3-8B-Instruct" in html
    typed = {
        "name": "qwen3-8b",
        "model": REFERENCE_SPEC.model,
        "served_names": "qwen3-8b",
        **{key: "on" if value is True else str(value) for key, value in REFERENCE_SPEC.values.items()},
    }
    client.post(reverse("engines:profile_add"), typed)
    assert Profile.objects.get().latest.spec == REFERENCE_SPEC


def test_an_imported_secret_is_asked_for_again(client, operator):
    client.force_login(operator)
    html = client.post(
        reverse("engines:profile_import"), {"command": f"HF_TOKEN={SECRET} vllm serve m --api-key {SECRET}"}
    ).content.decode()
    assert SECRET not in html
    assert "Enter the values of these secrets again: HF_TOKEN." in html


def test_an_import_of_something_else_says_so_and_keeps_it(client, operator):
    client.force_login(operator)
    response = client.post(reverse("engines:profile_import"), {"command": "ls -l /tmp"})
    assert response.status_code == 400
    assert "This is no command that starts a vLLM server." in response.content.decode()
    assert "ls -l /tmp" in response.content.decode()
