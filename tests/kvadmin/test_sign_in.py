"""Signing in and out, the lock, one-time passwords, and what the audit says of them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import (
    TOTP,
    format_hotp_value,
    generate_totp_secret,
    hotp_value,
    yield_hotp_counters_from_time,
)
from django.core.cache import cache
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from kvadmin.accounts import locks
from kvadmin.models import AuditEvent, User

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def sign_in(client, login, password=PASSWORD, **more):
    return client.post(reverse("account_login"), {"login": login, "password": password, **more})


def confirm(client):
    """Show again that it is oneself, as changes to the ways of signing in ask for."""
    return client.post(reverse("account_reauthenticate"), {"password": PASSWORD})


def test_by_user_name_or_email(client, viewer):
    User.objects.filter(pk=viewer.pk).update(email="vera@example.com")
    assert sign_in(client, "vera").url == "/"
    client.logout()
    assert sign_in(client, "Vera@example.com").url == "/"


def test_goes_back_to_where_one_came_from(client, viewer):
    assert sign_in(client, "vera", next="/account/").url == "/account/"
    client.logout()
    assert sign_in(client, "vera", next="https://evil.example/").url == "/"


def test_a_member_lands_on_a_page_they_may_see(client, outsider):
    response = client.post(reverse("account_login"), {"login": "otto", "password": PASSWORD}, follow=True)
    assert response.redirect_chain == [("/account/", 302)]
    assert response.status_code == 200


def test_a_wrong_password_says_so_and_keeps_the_name(client, viewer):
    html = sign_in(client, "vera", "wrong").content.decode()
    assert "do not belong together" in html
    assert 'value="vera"' in html
    assert "wrong" not in html


def test_sign_in_and_out_are_audited_with_the_address(client, viewer):
    sign_in(client, "vera")
    client.post(reverse("account_logout"))
    verbs = list(AuditEvent.objects.order_by("id").values_list("verb", "actor_name", "ip", "source"))
    assert verbs == [
        ("account.sign_in", "vera", "127.0.0.1", "web"),
        ("account.sign_out", "vera", "127.0.0.1", "web"),
    ]


def test_a_failed_sign_in_is_audited_without_what_was_typed(client, viewer):
    sign_in(client, "vera", "hunter2-secret")
    sign_in(client, "my-password-in-the-wrong-box", "x")
    known, unknown = AuditEvent.objects.order_by("id")
    assert (known.verb, known.actor_name, known.subject_name) == (
        "account.sign_in_failed",
        "anonymous",
        "vera",
    )
    assert unknown.after == {"method": "password", "account": "unknown"}
    everything = str(list(AuditEvent.objects.values()))
    assert "hunter2" not in everything
    assert "wrong-box" not in everything


def test_the_account_locks_after_ten_wrong_passwords(client, viewer):
    for _ in range(locks.FAILURES):
        sign_in(client, "vera", "wrong")
        cache.clear()  # the lock alone, without the shared limits
    html = sign_in(client, "vera").content.decode()
    assert "Too many wrong passwords" in html
    viewer.refresh_from_db()
    assert viewer.is_locked
    assert AuditEvent.objects.filter(after__locked_minutes=15).count() == 1


def test_the_lock_ends_by_itself(client, viewer):
    User.objects.filter(pk=viewer.pk).update(locked_until=timezone.now() - timedelta(seconds=1))
    assert sign_in(client, "vera").status_code == 302


def test_an_unknown_name_is_answered_like_a_locked_one(client, viewer):
    answers = []
    for name in ("vera", "nobody"):
        for _ in range(locks.FAILURES):
            sign_in(client, name, "wrong")
        answers.append("Too many wrong passwords" in sign_in(client, name, "wrong").content.decode())
        assert "Too many wrong passwords" in sign_in(client, name, "wrong").content.decode()
    assert answers == [True, True]


def test_an_administrator_lifts_the_lock(client, viewer, administrator):
    for _ in range(locks.FAILURES):
        sign_in(client, "vera", "wrong")
    client.force_login(administrator)
    client.post(reverse("kvadmin:user_lift_lock", args=[viewer.pk]))
    client.logout()
    assert sign_in(client, "vera").status_code == 302
    assert AuditEvent.objects.filter(verb="user.lift_lock", actor=administrator).exists()


def test_a_right_password_forgets_the_wrong_ones(client, viewer):
    for _ in range(3):
        sign_in(client, "vera", "wrong")
    sign_in(client, "vera")
    viewer.refresh_from_db()
    assert viewer.failed_sign_ins == 0


def test_sign_in_works_while_valkey_is_away(client, viewer, settings, caplog):
    settings.CACHES = {
        "default": {
            "BACKEND": "kvadmin.cache.LossyCache",
            "LOCATION": "unix:///nonexistent/valkey.sock",
        }
    }
    for _ in range(locks.FAILURES):
        sign_in(client, "vera", "wrong")
    assert "Too many wrong passwords" in sign_in(client, "vera").content.decode()
    locks.clear(viewer)
    assert sign_in(client, "vera").status_code == 302
    assert "the cache does not answer" in caplog.text


def test_a_deactivated_person_gets_a_sentence(client, viewer):
    User.objects.filter(pk=viewer.pk).update(is_active=False)
    response = sign_in(client, "vera")
    assert response.url == reverse("account_inactive")
    assert "switched off" in client.get(response.url).content.decode()


@pytest.mark.parametrize(
    "path",
    [
        "/account/signup/",
        "/account/email/",
        "/account/password/reset/",
        "/account/login/code/",
        "/account/3rdparty/",
        "/account/3rdparty/signup/",
        "/account/2fa/",
        "/account/confirm-email/",
    ],
)
def test_what_is_not_offered_has_no_address(client, viewer, path):
    client.force_login(viewer)
    assert client.get(path).status_code == 404


def test_there_is_no_sign_up():
    with pytest.raises(NoReverseMatch):
        reverse("account_signup")


class TestOneTimePassword:
    @pytest.fixture
    def newcomer(self, viewer):
        viewer.must_change_password = True
        viewer.save()
        return viewer

    def test_leads_only_to_the_new_password(self, client, newcomer):
        sign_in(client, "vera")
        change = reverse("account_change_password")
        for path in ("/account/", "/search/", "/no-such-page/"):
            assert client.get(path).url == change
        assert client.get(change).status_code == 200
        assert client.get("/api/manage/v1/version/").status_code == 403

    def test_a_fragment_sends_the_whole_page_there(self, client, newcomer):
        client.force_login(newcomer)
        response = client.get("/account/", headers={"HX-Request": "true"})
        assert response["HX-Redirect"] == reverse("account_change_password")

    def test_a_new_password_opens_the_rest(self, client, newcomer):
        sign_in(client, "vera")
        response = client.post(
            reverse("account_change_password"),
            {"oldpassword": PASSWORD, "password1": "a brand new one 77", "password2": "a brand new one 77"},
        )
        assert response.url == "/account/"
        assert client.get("/account/").status_code == 200
        newcomer.refresh_from_db()
        assert not newcomer.must_change_password
        assert AuditEvent.objects.filter(verb="account.change_password", actor=newcomer).exists()

    def test_the_same_password_again_is_refused(self, client, newcomer):
        sign_in(client, "vera")
        response = client.post(
            reverse("account_change_password"),
            {"oldpassword": PASSWORD, "password1": PASSWORD, "password2": PASSWORD},
        )
        assert "Choose another one" in response.content.decode()

    def test_signing_out_is_possible(self, client, newcomer):
        sign_in(client, "vera")
        assert client.post(reverse("account_logout")).status_code == 302
        assert client.get("/account/").url.startswith("/account/login/")


def code_for(secret: str) -> str:
    counter = next(iter(yield_hotp_counters_from_time()))
    return format_hotp_value(hotp_value(secret, counter))


class TestApp:
    def test_is_set_up_with_a_code_and_gives_recovery_codes(self, client, viewer):
        sign_in(client, "vera")
        confirm(client)
        page = client.get(reverse("mfa_activate_totp"))
        secret = page.context["form"].secret
        assert "data:image/svg" in page.content.decode()
        response = client.post(reverse("mfa_activate_totp"), {"code": code_for(secret)})
        assert response.url == reverse("mfa_view_recovery_codes")
        assert len(client.get(response.url).context["unused_codes"]) == 10

    def test_the_secret_is_encrypted_at_rest(self, viewer):
        secret = generate_totp_secret()
        TOTP.activate(viewer, secret)
        stored = Authenticator.objects.get(user=viewer, type="totp").data["secret"]
        assert secret not in stored

    def test_sign_in_asks_for_the_code(self, client, viewer):
        secret = generate_totp_secret()
        TOTP.activate(viewer, secret)
        assert sign_in(client, "vera").url.startswith(reverse("mfa_authenticate"))
        assert client.get("/account/").url.startswith("/account/login/")
        wrong = client.post(reverse("mfa_authenticate"), {"code": "000000"})
        assert "This is not right" in wrong.content.decode()
        assert client.post(reverse("mfa_authenticate"), {"code": code_for(secret)}).url == "/"
        assert client.get("/account/").status_code == 200
        refused = AuditEvent.objects.get(verb="account.sign_in_failed")
        assert refused.after == {"method": "totp"}
        assert AuditEvent.objects.filter(verb="account.sign_in", actor=viewer).exists()

    def test_adding_and_removing_are_audited(self, client, viewer, django_capture_on_commit_callbacks):
        sign_in(client, "vera")
        confirm(client)
        secret = client.get(reverse("mfa_activate_totp")).context["form"].secret
        with django_capture_on_commit_callbacks(execute=True):
            client.post(reverse("mfa_activate_totp"), {"code": code_for(secret)})
        with django_capture_on_commit_callbacks(execute=True):
            client.post(reverse("mfa_deactivate_totp"))
        verbs = set(AuditEvent.objects.filter(after__kind="totp").values_list("verb", flat=True))
        assert verbs == {"account.add_factor", "account.remove_factor"}


def test_every_page_of_the_account_opens(client, viewer):
    sign_in(client, "vera")
    confirm(client)
    for name in (
        "kvadmin:account",
        "mfa_index",
        "mfa_list_webauthn",
        "mfa_add_webauthn",
        "mfa_activate_totp",
        "account_change_password",
        "account_logout",
    ):
        response = client.get(reverse(name))
        assert response.status_code == 200, name
        html = response.content.decode()
        assert "style=" not in html, name
        assert "<script>" not in html, name


def test_changing_factors_asks_for_the_password_again(client, viewer):
    client.force_login(viewer)
    response = client.get(reverse("mfa_activate_totp"))
    assert response.url.startswith(reverse("account_reauthenticate"))
    page = client.get(response.url)
    assert "Confirm that it is you" in page.content.decode()
    done = client.post(response.url, {"password": PASSWORD})
    assert done.url == reverse("mfa_activate_totp")


def test_a_fragment_of_a_signed_out_person_sends_the_page_to_sign_in(client):
    response = client.get(
        "/account/", headers={"HX-Request": "true", "HX-Current-URL": "http://testserver/hosts/"}
    )
    assert response["HX-Redirect"] == "/account/login/?next=/hosts/"
