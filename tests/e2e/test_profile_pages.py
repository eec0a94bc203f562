"""Profiles in a real browser: the form says what is wrong while one types, and loses nothing."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from engines.models import Profile
from kvadmin.policies import Role
from tests.e2e.pages import check_page
from tests.support.factories import ProfileFactory, RevisionFactory
from tests.support.people import make_person

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def signed_in(sign_in_as, transactional_db):
    return sign_in_as(make_person("olga", Role.OPERATOR))


@pytest.fixture
def profile(transactional_db):
    profile = ProfileFactory(name="qwen3-8b-v1", description="For the shop's assistants.")
    RevisionFactory(profile=profile, number=1, values={"max_model_len": 32768})
    RevisionFactory(
        profile=profile,
        number=2,
        values={"max_model_len": 16384, "gpu_memory_utilization": 0.97},
        environment={"VLLM_LOGGING_LEVEL": "INFO"},
        secret_environment=json.dumps({"HF_TOKEN": "x"}),
        extra_arguments="--api-server-count 2",
    )
    return profile


@pytest.mark.parametrize(
    ("path", "heading"),
    [
        ("", "Profiles"),
        ("import/", "Import a profile"),
        ("add/", "New profile"),
        ("{pk}/", "qwen3-8b-v1"),
        ("{pk}/edit/", "Edit profile"),
        ("{pk}/compare/", "Revisions 1 and 2"),
    ],
)
def test_page(signed_in, profile, path, heading):
    signed_in.goto(f"/profiles/{path.format(pk=profile.pk)}")
    expect(signed_in.get_by_role("heading", name=heading, level=1)).to_be_visible()
    check_page(signed_in, f"profile-{heading.lower().replace(' ', '-')}")


def test_a_profile_is_made_with_mistakes_on_the_way(signed_in):
    page = signed_in
    page.watched.expected_statuses.add(400)
    page.goto("/profiles/add/")
    page.get_by_label("Name", exact=True).fill("qwen3-8b-v1")
    page.get_by_label("Model", exact=True).fill("Qwen/Qwen3-8B")
    page.get_by_role("textbox", name="Requests at once").fill("many")
    expect(page.locator("#note-max_num_seqs")).to_contain_text("takes a whole number")
    expect(page.locator("#in-max_num_seqs")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#command")).to_contain_text("vllm serve Qwen/Qwen3-8B")
    page.get_by_role("button", name="Add a variable").click()
    row = page.locator("[data-variable]").last
    row.get_by_label("Variable").fill("HF_TOKEN")
    row.get_by_label("Kind").select_option("secret")
    row.get_by_label("Value").fill("typed-secret")
    expect(row.get_by_label("Value")).to_have_attribute("type", "password")
    page.get_by_role("button", name="Save profile").click()
    expect(page.get_by_role("alert")).to_contain_text("The profile is not saved yet.")
    check_page(page, "profile-refused")
    expect(row.get_by_label("Value")).to_have_value("typed-secret")
    page.get_by_role("textbox", name="Requests at once").fill("64")
    page.get_by_role("button", name="Save profile").click()
    expect(page).to_have_url(re.compile(r"/profiles/\d+/$"))
    expect(page.get_by_text("Revision 1 is saved.")).to_be_visible()
    revision = Profile.objects.get().latest
    assert revision.values == {"max_num_seqs": 64}
    assert revision.secrets == {"HF_TOKEN": "typed-secret"}


def test_a_conflict_is_shown_beside_what_was_typed(signed_in, profile):
    page = signed_in
    page.watched.expected_statuses.add(409)
    page.goto(f"/profiles/{profile.pk}/edit/")
    page.get_by_label("Longest request").fill("8192")
    RevisionFactory(profile=profile, number=3, values={"max_model_len": 4096})
    page.get_by_role("button", name="Save revision").click()
    expect(page.get_by_text("Revision 3 by kvadmin, beside yours")).to_be_visible()
    expect(page.get_by_label("Longest request")).to_have_value("8192")
    check_page(page, "profile-conflict")
    page.get_by_role("button", name="Save mine on top of it").click()
    expect(page.get_by_text("Revision 4 is saved.")).to_be_visible()
    assert profile.latest.values["max_model_len"] == 8192
    assert profile.latest.secrets == {"HF_TOKEN": "x"}
