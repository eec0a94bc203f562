"""The account's page of management tokens."""

from __future__ import annotations

import re
from html import unescape

import pytest

from kvadmin.actions import Actor
from kvadmin.actions.issue_token import IssueToken
from kvadmin.models import AuditEvent, ManagementToken
from tests.support.api import Api

PAGE = "/account/tokens/"


def test_it_shows_a_new_token_once(client, viewer):
    client.force_login(viewer)
    response = client.post(PAGE, {"name": "nightly", "scope": "write", "days": "30"})
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    text = unescape(response.content.decode())
    secret = re.search(r"kvm_[0-9a-f]{16}_[\w-]{43}", text).group()
    assert f'curl -H "Authorization: Bearer {secret}" http://testserver/api/manage/v1/' in text
    assert Api().get("system/version/", Authorization=f"Bearer {secret}").json()["scope"] == "write"
    again = client.get(PAGE).content.decode()
    assert "nightly" in again
    assert secret not in again
    assert AuditEvent.objects.get(verb="token.issue").source == "web"


def test_it_keeps_what_was_typed_when_something_is_wrong(client, viewer):
    client.force_login(viewer)
    response = client.post(PAGE, {"name": "x" * 101, "scope": "write", "days": "30"})
    assert response.status_code == 400
    assert "x" * 101 in response.content.decode()
    assert not ManagementToken.objects.exists()


def test_it_revokes(client, viewer):
    client.force_login(viewer)
    issued = IssueToken(Actor(), user=viewer, name="zebra").run()
    response = client.post(f"{PAGE}{issued.token.pk}/revoke/", follow=True)
    assert "is revoked" in response.content.decode()
    issued.token.refresh_from_db()
    assert issued.token.revoked_at is not None


def test_nobody_revokes_another_ones_token(client, viewer, administrator):
    issued = IssueToken(Actor(), user=viewer, name="zebra").run()
    client.force_login(administrator)
    assert client.post(f"{PAGE}{issued.token.pk}/revoke/").status_code == 404
    assert "zebra" not in client.get(PAGE).content.decode()


@pytest.mark.parametrize("person", ["administrator", "operator", "viewer", "outsider"])
def test_everybody_has_the_page(client, request, person):
    client.force_login(request.getfixturevalue(person))
    assert client.get(PAGE).status_code == 200


def test_strangers_sign_in_first(client, db):
    assert client.get(PAGE)["Location"].startswith("/account/login/")
    assert client.post(PAGE, {"name": "x"})["Location"].startswith("/account/login/")
    assert client.get("/api/manage/v1/docs")["Location"].startswith("/account/login/")
