"""Signing in to the management API: every reason for refusal has its own code; no token is echoed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from kvadmin.actions import Actor
from kvadmin.actions.change_user import ChangeUser
from kvadmin.actions.reset_password import ResetPassword
from kvadmin.models import AuditEvent, ManagementToken
from tests.support.api import Api, assert_problem

WHO = "system/version/"


def test_it_lets_a_token_in(viewer):
    body = Api(viewer, "read").get(WHO).json()
    assert body["user"] == "vera"
    assert body["scope"] == "read"


def test_it_takes_bearer_in_any_case_and_blanks_around(viewer):
    api = Api(viewer)
    secret = api.headers["Authorization"].split()[1]
    assert api.get(WHO, Authorization=f"  bEARER   {secret} ").status_code == 200


def test_it_refuses_no_credentials(db):
    response = Api().get(WHO)
    assert_problem(response, 401, "not_signed_in")
    assert response["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("Token kvm_x", "token_scheme"),
        ("Basic YTpi", "token_scheme"),
        ("Bearer", "token_scheme"),
        ("Bearer ", "token_scheme"),
        ("", "token_scheme"),
        ("Bearer sk-kv-0123456789", "token_is_gateway_key"),
        ("Bearer kvm_short", "token_malformed"),
        ('Bearer "kvm_0123456789abcdef_abcdefghijklmnopqrstuvwx"', "token_malformed"),
        ("Bearer kvm_0123456789abcdef_abcdefghij klmnopqrstuvwx", "token_malformed"),
        ("Bearer kvm_0123456789abcdef_abcdefghijklmnopqrstuvwx", "token_unknown"),
    ],
)
def test_it_says_what_is_wrong_with_the_header(db, header, code):
    response = Api().get(WHO, Authorization=header)
    assert_problem(response, 401, code)
    if "kvm_0" in header:
        assert "abcdefghij" not in response.content.decode()


def test_it_refuses_a_wrong_secret_as_unknown(viewer):
    api = Api(viewer)
    wrong = api.headers["Authorization"][:-4] + "AAAA"
    assert_problem(api.get(WHO, Authorization=wrong), 401, "token_unknown")


def test_it_refuses_an_expired_token(viewer):
    api = Api(viewer)
    ManagementToken.objects.update(expires_at=timezone.now() - timedelta(days=1))
    problem = assert_problem(api.get(WHO), 401, "token_expired")
    assert (timezone.now() - timedelta(days=1)).date().isoformat() in problem["detail"]


def test_it_refuses_a_revoked_token(viewer):
    api = Api(viewer)
    ManagementToken.objects.update(revoked_at=timezone.now())
    assert_problem(api.get(WHO), 401, "token_revoked")


def test_it_refuses_a_disabled_user(viewer):
    api = Api(viewer)
    viewer.is_active = False
    viewer.save()
    assert_problem(api.get(WHO), 401, "user_disabled")


def test_it_refuses_while_a_new_password_is_due(viewer):
    api = Api(viewer)
    viewer.must_change_password = True
    viewer.save()
    assert_problem(api.get(WHO), 401, "new_password_due")


def test_a_password_reset_by_an_administrator_revokes_the_person_s_tokens_only(administrator, viewer):
    api, other = Api(viewer), Api(administrator)
    ResetPassword(Actor(user=administrator), user=viewer).run()
    assert_problem(api.get(WHO), 401, "token_revoked")
    assert other.get(WHO).status_code == 200
    event = AuditEvent.objects.get(verb="user.reset_password")
    assert event.after == {"must_change_password": True, "tokens_revoked": 1}


def test_it_refuses_a_person_whom_an_administrator_deactivated(administrator, viewer):
    api = Api(viewer)
    ChangeUser(Actor(user=administrator), user=viewer, is_active=False).run()
    assert_problem(api.get(WHO), 401, "user_disabled")


def test_a_wrong_secret_learns_nothing_of_a_revoked_token(viewer):
    api = Api(viewer)
    ManagementToken.objects.update(revoked_at=timezone.now())
    wrong = api.headers["Authorization"][:-4] + "AAAA"
    assert_problem(api.get(WHO, Authorization=wrong), 401, "token_unknown")


def test_a_bad_token_is_not_rescued_by_the_session(viewer, client):
    client.force_login(viewer)
    response = client.get("/api/manage/v1/system/version/", headers={"Authorization": "Bearer kvm_x"})
    assert_problem(response, 401, "token_malformed")


def test_a_read_token_may_not_write(operator):
    response = Api(operator, "read").post("tokens/", {"name": "x"})
    assert_problem(response, 403, "token_scope")
    assert ManagementToken.objects.count() == 1


def test_it_notes_the_use_at_most_once_a_minute(viewer, django_assert_num_queries):
    api = Api(viewer)
    api.get(WHO)
    first = ManagementToken.objects.get().last_used_at
    assert first is not None
    with django_assert_num_queries(1):
        api.get(WHO)
    assert ManagementToken.objects.get().last_used_at == first
    ManagementToken.objects.update(last_used_at=first - timedelta(minutes=2))
    api.get(WHO)
    assert ManagementToken.objects.get().last_used_at > first


def test_the_session_reads_and_writes_with_its_csrf_token(viewer):
    client = Client(enforce_csrf_checks=True)
    client.force_login(viewer)
    assert client.get("/api/manage/v1/system/version/").json()["scope"] is None
    refused = client.post("/api/manage/v1/tokens/", {"name": "x"}, content_type="application/json")
    assert_problem(refused, 403, "csrf_failed")
    client.cookies["csrftoken"] = "a" * 32
    made = client.post(
        "/api/manage/v1/tokens/",
        {"name": "x"},
        content_type="application/json",
        headers={"X-CSRFToken": "a" * 32},
    )
    assert made.status_code == 201


def test_a_token_needs_no_csrf_token(viewer):
    client = Client(enforce_csrf_checks=True)
    api = Api(viewer)
    api.client = client
    assert api.post("tokens/", {"name": "x"}).status_code == 201
