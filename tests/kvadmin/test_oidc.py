"""Signing in through the company's OpenID Connect provider, and the administrators' test of it."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urlsplit

import httpx
import pytest
from django.urls import reverse

from kvadmin.accounts.oidc import check_provider
from kvadmin.models import AuditEvent, User
from tests.support.oidc import CLIENT_SECRET, Provider, provider_settings, running_provider

pytestmark = pytest.mark.django_db
LOGIN = "/account/oidc/oidc/login/"


@pytest.fixture
def provider(settings):
    with running_provider() as provider:
        settings.SOCIALACCOUNT_PROVIDERS = provider_settings(provider.address)
        provider.person = {
            "sub": "4711",
            "preferred_username": "nina",
            "name": "Nina Example",
            "email": "nina@example.com",
            "email_verified": True,
        }
        yield provider


def go_through(client, **data):
    """From the button to the answer of the callback."""
    begin = client.post(LOGIN, data)
    assert begin.status_code == 200
    onward = unescape(re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', begin.content.decode())[1])
    back = urlsplit(httpx.get(onward).headers["location"])
    return client.get(f"{back.path}?{back.query}")


def test_the_button_is_on_the_sign_in_page_only_when_set_up(client, provider, settings):
    assert "Sign in with Example login" in client.get("/account/login/").content.decode()
    settings.SOCIALACCOUNT_PROVIDERS = {}
    assert "Example login" not in client.get("/account/login/").content.decode()


def test_a_known_address_signs_in_as_that_user(client, provider, viewer):
    User.objects.filter(pk=viewer.pk).update(email="Nina@example.com")
    assert go_through(client).url == "/"
    assert client.get("/account/").context["user"] == viewer
    verbs = list(AuditEvent.objects.order_by("id").values_list("verb", flat=True))
    assert verbs == ["account.join_oidc", "account.sign_in"]
    client.logout()
    assert go_through(client).url == "/"
    assert User.objects.count() == 1


def test_goes_back_to_where_one_came_from(client, provider, viewer):
    User.objects.filter(pk=viewer.pk).update(email="nina@example.com")
    assert go_through(client, next="/account/").url == "/account/"


def test_a_stranger_gets_no_account(client, provider):
    html = go_through(client).content.decode()
    assert "No account here yet" in html
    assert not User.objects.exists()


def test_a_stranger_gets_an_account_where_the_settings_say_so(client, provider, settings):
    settings.KVADMIN_OIDC_CREATE_USERS = True
    settings.KVADMIN_OIDC_ROLE = "operator"
    assert go_through(client).url == "/"
    nina = User.objects.get(username="nina")
    assert (nina.role, nina.email, nina.get_full_name()) == ("operator", "nina@example.com", "Nina Example")
    assert not nina.has_usable_password()
    assert client.get("/account/").status_code == 200
    assert AuditEvent.objects.get(verb="user.create").after["by"] == "oidc"


def test_a_taken_user_name_does_not_give_another_s_account(client, provider, settings):
    settings.KVADMIN_OIDC_CREATE_USERS = True
    taken = User.objects.create_user("nina", role="administrator")
    go_through(client)
    assert client.get("/account/").context["user"] != taken
    assert User.objects.exclude(pk=taken.pk).get().role == "viewer"


def test_an_unconfirmed_address_does_not_open_an_account(client, provider, viewer, settings):
    settings.KVADMIN_OIDC_CREATE_USERS = True
    User.objects.filter(pk=viewer.pk).update(email="nina@example.com")
    provider.person["email_verified"] = False
    response = go_through(client)
    assert response.status_code == 403
    assert "does not confirm" in response.content.decode()
    assert client.get("/account/").status_code == 302
    assert User.objects.count() == 1


def test_a_deactivated_user_stays_out(client, provider, viewer):
    User.objects.filter(pk=viewer.pk).update(email="nina@example.com", is_active=False)
    assert go_through(client).url == reverse("account_inactive")
    assert client.get("/account/").status_code == 302


def test_an_account_is_never_joined_to_whoever_is_signed_in(client, provider, viewer):
    client.force_login(viewer)
    client.post(f"{LOGIN}?process=connect", {"process": "connect"})
    go_through(client)
    assert not viewer.socialaccount_set.exists()


def test_refusal_at_the_provider_is_said(client, provider):
    provider.refuse = True
    response = go_through(client)
    html = (
        client.get(response.url).content.decode()
        if response.status_code == 302
        else response.content.decode()
    )
    assert "Nothing was changed" in html


def test_an_answer_that_nobody_asked_for_is_refused(client, provider):
    response = client.get("/account/oidc/oidc/login/callback/?code=x&state=y")
    assert "could not be used" in response.content.decode()
    assert client.get("/account/").status_code == 302


def test_an_unreachable_provider_is_said(client, settings):
    settings.SOCIALACCOUNT_PROVIDERS = provider_settings("http://127.0.0.1:9")
    response = client.post(LOGIN)
    assert response.status_code == 403
    assert "does not answer as it should" in response.content.decode()


def test_an_unknown_provider_is_not_found(client, provider):
    assert client.post("/account/oidc/other/login/").status_code == 404


def test_there_is_no_second_factor_to_set_up_for_those_without_password(client, provider, settings):
    settings.KVADMIN_OIDC_CREATE_USERS = True
    go_through(client)
    assert "Second factor" not in client.get("/account/").content.decode()
    page = client.get(reverse("account_change_password"), follow=True)
    assert "no password here to change" in page.content.decode()


def titles(provider: Provider) -> list[tuple[str, str]]:
    return [(check.tone, str(check.title)) for check in check_provider(provider.address)]


class TestOfProvider:
    def test_a_good_provider(self, provider):
        assert [tone for tone, _title in titles(provider)] == ["ok", "warn", "ok", "ok"]
        assert ("warn", "Without encryption") in titles(provider)

    def test_another_issuer(self, provider):
        provider.discovery_changes = {"issuer": "https://other.example"}
        assert ("warn", "The issuer has another address") in titles(provider)

    def test_missing_endpoints_are_named(self, provider):
        provider.discovery_changes = {"token_endpoint": None}
        last = check_provider(provider.address)[-1]
        assert last.tone == "bad"
        assert "token_endpoint" in last.text

    def test_no_keys(self, provider):
        provider.keys = False
        assert ("bad", "No keys") in titles(provider)

    def test_another_kind_of_server(self, provider):
        (check,) = check_provider(f"{provider.address}/somewhere")
        assert check.tone == "bad"
        assert "status 404" in check.text
        assert "KVADMIN_OIDC_SERVER_URL" in check.text

    def test_nobody_there(self):
        (check,) = check_provider("http://127.0.0.1:9")
        assert "cannot be reached from here" in check.text

    def test_the_page_shows_callback_and_outcome_and_no_secret(self, client, provider, administrator):
        client.force_login(administrator)
        page = client.get(reverse("kvadmin:oidc")).content.decode()
        assert "http://testserver/account/oidc/oidc/login/callback/" in page
        assert CLIENT_SECRET not in page
        tested = client.post(reverse("kvadmin:oidc")).content.decode()
        assert "Without encryption" in tested
