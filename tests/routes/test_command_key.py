"""manage.py key: only the secret on standard output, refusals in words."""

from __future__ import annotations

import sys
from io import StringIO

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from kvadmin.models import AuditEvent
from routes import keyformat
from routes.choices import KeyState
from routes.models import Key
from tests.support.route_factories import BusinessFactory, KeyFactory

pytestmark = pytest.mark.django_db

STRONG = "cPq7Lm2ZxT9vWb4KdR8nYs3H"


def run(*args):
    out, err = StringIO(), StringIO()
    call_command("key", *args, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


@pytest.fixture
def business(team):
    return BusinessFactory(team=team, name="shop")


def test_it_prints_a_key_that_is_stored_by_its_digest_and_nothing_else(business):
    out, err = run(
        "issue", "--business", "shop", "--name", "production", "--model", "qwen3-8b-v1", "--days", "30",
        "--address", "10.0.0.0/8", "--concurrent", "4", "--monthly-tokens", "1000000",
    )  # fmt: skip
    secret = out.removesuffix("\n")
    key = Key.objects.get()
    assert bytes(key.digest) == keyformat.digest(secret, settings.KVADMIN_PEPPER)
    assert (key.name, key.models, key.addresses, key.concurrent) == (
        "production", ["qwen3-8b-v1"], ["10.0.0.0/8"], 4,
    )  # fmt: skip
    assert secret not in err
    assert "no route named “qwen3-8b-v1”" in err
    event = AuditEvent.objects.get(verb="key.issue")
    assert event.source == "command"
    assert secret not in str(vars(event))


def test_it_makes_team_and_business_only_when_asked(db):
    with pytest.raises(CommandError, match="--create"):
        run("issue", "--business", "shop", "--team", "search")
    with pytest.raises(CommandError, match="--team"):
        run("issue", "--business", "shop", "--create")
    run("issue", "--business", "shop", "--team", "search", "--create")
    run("issue", "--business", "shop", "--team", "search", "--create")
    assert Key.objects.filter(business__name="shop", business__team__name="search").count() == 2


def test_a_name_that_two_teams_use_needs_the_team(business):
    BusinessFactory(name="shop")
    with pytest.raises(CommandError, match="--team"):
        run("issue", "--business", "shop")
    run("issue", "--business", "shop", "--team", "search")


@pytest.mark.parametrize("how", ["public_id", "pk", "masked", "secret"])
def test_rotate_and_revoke_find_a_key_by_each_of_its_names(how, business):
    key = KeyFactory(business=business)
    out, err = run("rotate", str(getattr(key, how)), "--overlap-hours", "2")
    successor = Key.objects.get(predecessor=key)
    assert keyformat.public_id(out.strip()) == successor.public_id
    assert "works until" in err
    out, err = run("revoke", str(getattr(key, how)))
    assert out == ""
    assert key.secret not in err
    key.refresh_from_db()
    assert key.state == KeyState.REVOKED
    with pytest.raises(CommandError, match="revoked before"):
        run("revoke", str(getattr(key, how)))


def test_the_list_shows_no_secret_and_the_ended_ones_only_when_asked(business):
    key, ended = KeyFactory(business=business), KeyFactory(business=business)
    run("revoke", str(ended.pk))
    out, _err = run("list", "--team", "search")
    assert key.masked in out and "active" in out
    assert key.secret not in out and ended.masked not in out
    assert ended.masked in run("list", "--all")[0]
    assert run("list", "--business", "none")[0] == ""


def test_an_existing_secret_comes_by_standard_input(business, monkeypatch):
    monkeypatch.setattr(sys, "stdin", StringIO(f"{STRONG}\n"))
    out, err = run("import", "--business", "shop", "--name", "old gateway")
    assert STRONG not in out + err
    assert Key.objects.get().hint == STRONG[-4:]
    monkeypatch.setattr(sys, "stdin", StringIO("EMPTY\n"))
    with pytest.raises(CommandError, match="placeholder"):
        run("import", "--business", "shop")


def test_refusals_are_sentences(business):
    with pytest.raises(CommandError, match=r"10\.0\.0\.0/8 is meant"):
        run("issue", "--business", "shop", "--address", "10.1.2.3/8")
    with pytest.raises(CommandError, match="no such key"):
        run("revoke", "sk-kv-nothing")
    with pytest.raises(CommandError, match="3650"):
        run("issue", "--business", "shop", "--days", "0")
