"""The API's documentation and the page of tokens in a real browser, under the console's policy."""

from __future__ import annotations

import pytest
from drf_spectacular.generators import SchemaGenerator
from playwright.sync_api import expect

from kvadmin.policies import Role
from tests.e2e.pages import check_page
from tests.support.people import make_person

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def olga(transactional_db):
    return make_person("olga", Role.OPERATOR)


def test_the_documentation_shows_every_resource(page, sign_in_as, olga):
    sign_in_as(olga)
    page.goto("/api/manage/v1/docs")
    shown = page.locator("[id^=operations-tag-]")
    expect(shown.first).to_be_visible()
    documented = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    tags = {path.split("/")[4] for path in documented}
    assert {tag.get_attribute("data-tag") for tag in shown.all()} == tags
    for tag in sorted(tags):
        page.locator(f"#operations-tag-{tag}").click()
    expect(page.locator(".opblock")).to_have_count(sum(map(len, documented.values())))
    page.get_by_text("Make a token").click()
    opened = page.locator(".opblock.is-open")
    expect(opened.locator("tr.response[data-code='201']")).to_contain_text("application/json")
    expect(opened.locator("tr.response[data-code='409']")).to_contain_text("application/problem+json")


def test_a_token_is_made_and_shown_once(page, sign_in_as, olga):
    sign_in_as(olga)
    page.goto("/account/tokens/")
    page.get_by_label("Name").fill("nightly script")
    page.get_by_role("button", name="Make the token").click()
    expect(page.get_by_text("Copy it now")).to_be_visible()
    check_page(page, "token-made")
    page.goto("/account/tokens/")
    page.get_by_role("button", name="Revoke nightly script").click()
    expect(page.get_by_text("is revoked")).to_be_visible()
    check_page(page, "tokens")
