"""The console's own pages in a real browser."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from kvadmin.actions import Actor
from kvadmin.models import AuditEvent, User
from kvadmin.policies import Role
from tests.e2e.pages import check_page
from tests.support.people import make_person

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def ada(transactional_db):
    return make_person("ada", Role.ADMINISTRATOR)


def test_sign_in_page(page):
    page.goto("/account/login/")
    check_page(page, "sign-in")


def test_first_sign_in_with_a_one_time_password(page, ada):
    User.objects.update(must_change_password=True)
    page.goto("/account/")
    page.get_by_label("User name or email").fill("ada")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Set your own password")).to_be_visible()
    check_page(page, "new-password")
    page.get_by_label("Present password").fill("correct horse battery")
    page.get_by_label("New password", exact=True).fill("another good one 12")
    page.get_by_label("New password again").fill("another good one 12")
    page.get_by_role("button", name="Set password").click()
    expect(page).to_have_url(re.compile("/account/$"))


def test_a_wrong_password_is_said_in_words(page, ada):
    page.goto("/account/login/")
    page.get_by_label("User name or email").fill("ada")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_text("do not belong together")).to_be_visible()
    check_page(page, "sign-in-wrong")


@pytest.mark.parametrize(
    "name",
    [
        "kvadmin:account",
        "kvadmin:user_list",
        "kvadmin:user_add",
        "kvadmin:oidc",
        "kvadmin:audit_list",
        "kvadmin:system",
        "kvadmin:search",
        "kvadmin:token_list",
        "mfa_index",
        "mfa_list_webauthn",
        "account_change_password",
        "account_logout",
        "account_reauthenticate",
    ],
)
def test_pages_of_an_administrator(sign_in_as, ada, name):
    vera = make_person("vera", Role.VIEWER)
    AuditEvent.objects.record(
        actor=Actor(user=ada, source="web", ip="10.0.0.7"),
        verb="user.change",
        subject=vera,
        before={"role": "viewer"},
        after={"role": "operator"},
    )
    page = sign_in_as(ada)
    page.goto(reverse(name))
    check_page(page, name.partition(":")[2] or name)


def test_user_page(sign_in_as, ada):
    vera = make_person("vera", Role.VIEWER)
    page = sign_in_as(ada)
    page.goto(vera.get_absolute_url())
    check_page(page, "user")
    page.get_by_role("button", name="Reset password").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    check_page(page, "user-dialog")
    page.get_by_role("dialog").get_by_role("button", name="Reset password").click()
    expect(page.get_by_role("heading", name="One-time password")).to_be_visible()
    check_page(page, "user-password")


def test_error_pages(sign_in_as, ada, page):
    vera = make_person("vera", Role.VIEWER)
    sign_in_as(vera)
    page.watched.expected_statuses = {403, 404}
    page.goto("/no-such-page/")
    check_page(page, "404")
    page.goto(reverse("kvadmin:user_list"))
    check_page(page, "403")


def test_the_palette_by_keyboard(sign_in_as, ada):
    make_person("vera", Role.VIEWER)
    page = sign_in_as(ada)
    page.goto("/account/")
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Search or jump to")
    expect(field).to_be_focused()
    expect(page.get_by_role("option", name="System")).to_be_visible()
    check_page(page, "palette")
    field.fill("ver")
    expect(page.get_by_role("option", name="vera")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/users/\d+/$"))
    page.keyboard.press("/")
    expect(field).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_menu_on_a_phone(sign_in_as, ada):
    page = sign_in_as(ada)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/account/")
    audit = page.get_by_role("link", name="Audit")
    expect(audit).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    check_page(page, "menu")
    audit.click()
    expect(page).to_have_url(re.compile("/audit/$"))


def test_the_theme_changes_without_leaving_the_page(sign_in_as, ada):
    page = sign_in_as(ada)
    page.goto("/audit/")
    page.locator("details.who summary").click()
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_language_changes_to_chinese(sign_in_as, ada):
    page = sign_in_as(ada)
    page.goto("/audit/")
    page.locator("details.who summary").click()
    page.get_by_role("button", name="简体中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh-hans")
    expect(page).to_have_url(re.compile("/audit/$"))


def test_a_passkey_is_added_and_signs_in(page, ada):
    """With Chromium's own virtual authenticator; the live server is at http://localhost, the one plain
    address where browsers have passkeys."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    session.send(
        "WebAuthn.addVirtualAuthenticator",
        {
            "options": {
                "protocol": "ctap2",
                "transport": "internal",
                "hasResidentKey": True,
                "hasUserVerification": True,
                "isUserVerified": True,
                "automaticPresenceSimulation": True,
            }
        },
    )
    page.goto("/account/login/")
    page.get_by_label("User name or email").fill("ada")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.goto("/account/passkeys/add/")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Go on").click()
    check_page(page, "passkey-add")
    page.get_by_label("Name").fill("laptop")
    page.get_by_label("Sign in with it alone").check()
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    check_page(page, "recovery-codes")
    page.goto("/account/passkeys/")
    expect(page.get_by_text("laptop")).to_be_visible()
    check_page(page, "passkeys-one")
    page.context.clear_cookies()
    page.goto("/account/login/")
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url(re.compile(r"localhost:\d+/$"))
    assert AuditEvent.objects.filter(verb="account.sign_in", actor=ada).count() == 2
