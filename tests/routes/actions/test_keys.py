"""A key's life: issued by an owner, shown once, bounded, rotated with an overlap, revoked."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.conf import settings
from django.core import serializers
from django.utils import timezone

from kvadmin.actions import Actor, Conflict, Denied, Invalid
from kvadmin.models import AuditEvent
from routes import keyformat
from routes.actions.change_business import ChangeBusiness
from routes.actions.change_key import ChangeKey
from routes.actions.create_business import CreateBusiness
from routes.actions.disable_key import DisableKey
from routes.actions.enable_key import EnableKey
from routes.actions.import_key import ImportKey
from routes.actions.issue_key import IssueKey
from routes.actions.remove_business import RemoveBusiness
from routes.actions.revoke_key import RevokeKey
from routes.actions.rotate_key import RotateKey
from routes.choices import KeyState
from routes.models import Business, Key
from tests.support.route_factories import BusinessFactory, KeyFactory, RouteFactory, TeamFactory

pytestmark = pytest.mark.django_db

STRONG = "cPq7Lm2ZxT9vWb4KdR8nYs3H"


def by(user) -> Actor:
    return Actor(user=user, source="web")


@pytest.fixture
def business(team):
    return BusinessFactory(team=team, name="shop")


@pytest.fixture
def key(business):
    return KeyFactory(business=business, name="production")


def everything_written() -> str:
    """Every audit row and every key as it is stored, as one text."""
    rows = AuditEvent.objects.values_list("before", "after", "subject_name")
    return json.dumps([list(row) for row in rows], default=str) + serializers.serialize(
        "json", Key.objects.all()
    )


def test_an_owner_issues_a_key_whose_secret_is_kept_nowhere(business, team_owner):
    soon = timezone.now() + timedelta(days=30)
    issued = IssueKey(
        by(team_owner),
        business,
        " production ",
        expires_at=soon,
        addresses=["10.1.0.0/16", "192.0.2.7", "2001:db8::/32"],
        requests_per_minute=60,
        tokens_per_minute=100_000,
        concurrent=8,
        monthly_tokens=10_000_000,
    ).run()
    key = Key.objects.get()
    assert key.name == "production"
    assert key.addresses == ["10.1.0.0/16", "192.0.2.7/32", "2001:db8::/32"]
    assert keyformat.public_id(issued.secret) == key.public_id
    assert bytes(key.digest) == keyformat.digest(issued.secret, settings.KVADMIN_PEPPER)
    assert (key.state, key.created_by) == (KeyState.ACTIVE, team_owner)
    assert issued.secret not in everything_written()
    assert issued.secret not in repr(issued)
    assert issued.secret[-40:] not in everything_written()
    event = AuditEvent.objects.get(verb="key.issue")
    assert event.subject_id == str(key.pk)
    assert event.after["monthly_tokens"] == 10_000_000


@pytest.mark.parametrize("person", ["operator", "viewer", "team_member", "outsider"])
def test_who_does_not_own_the_team_changes_no_key(person, business, key, request):
    user = request.getfixturevalue(person)
    for action in (
        IssueKey(by(user), business, "mine"),
        ImportKey(by(user), business, "mine", STRONG),
        ChangeKey(by(user), key, {"name": "mine"}),
        DisableKey(by(user), key),
        EnableKey(by(user), key),
        RotateKey(by(user), key),
        RevokeKey(by(user), key),
        CreateBusiness(by(user), business.team, "mine"),
        ChangeBusiness(by(user), business, name="mine"),
        RemoveBusiness(by(user), business),
    ):
        with pytest.raises(Denied):
            action.run()
    assert Key.objects.count() == 1
    assert not AuditEvent.objects.exists()


def test_an_owner_of_another_team_is_an_outsider(key, outsider):
    TeamFactory().memberships.create(user=outsider, role="owner")
    with pytest.raises(Denied):
        RevokeKey(by(outsider), key).run()
    assert not Key.objects.visible_to(outsider).exists()


def test_who_sees_keys(key, team_owner, team_member, outsider, viewer, operator, administrator):
    seen = [
        user.username
        for user in (team_owner, team_member, outsider, viewer, operator, administrator)
        if Key.objects.visible_to(user).exists()
    ]
    assert seen == ["oona", "mika", "olga", "ada"]


@pytest.mark.parametrize(
    ("bounds", "field"),
    [
        ({"name": "  "}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"models": []}, "models"),
        ({"expires_at": timezone.now() - timedelta(seconds=1)}, "expires_at"),
        ({"expires_at": timezone.now() + timedelta(days=4000)}, "expires_at"),
        ({"addresses": ["10.0.0.300"]}, "addresses"),
        ({"addresses": ["10.1.2.3/8"]}, "addresses"),
        ({"addresses": ["fe80::1%eth0"]}, "addresses"),
        ({"addresses": ["example.org"]}, "addresses"),
        ({"requests_per_minute": 0}, "requests_per_minute"),
        ({"tokens_per_minute": 2**31}, "tokens_per_minute"),
        ({"concurrent": -1}, "concurrent"),
        ({"monthly_tokens": 2**60}, "monthly_tokens"),
    ],
)
def test_bounds_that_make_no_sense_are_refused_by_field(bounds, field, business, team_owner):
    with pytest.raises(Invalid) as refused:
        IssueKey(by(team_owner), business, **{"name": "production", **bounds}).run()
    assert list(refused.value.errors) == [field]


def test_a_network_with_digits_behind_its_prefix_is_corrected(business, team_owner):
    with pytest.raises(Invalid) as refused:
        IssueKey(by(team_owner), business, "production", addresses=["10.1.2.3/8"]).run()
    assert "10.0.0.0/8" in refused.value.message


def test_a_mapped_address_is_the_one_that_it_maps(business, team_owner):
    given = ["::ffff:192.0.2.7", "192.0.2.7", "::ffff:10.1.0.0/112", "::ffff:0:0/96", "::/0"]
    IssueKey(by(team_owner), business, "production", addresses=given).run()
    assert Key.objects.get().addresses == ["192.0.2.7/32", "10.1.0.0/16", "0.0.0.0/0", "::/0"]


def test_an_alias_among_the_models_is_kept_as_its_route(business, team_owner):
    RouteFactory(name="qwen3-8b-v2", aliases=["qwen3-8b", "default"])
    IssueKey(by(team_owner), business, "production", models=["default", "qwen3-8b-v2", "later-70b"]).run()
    assert Key.objects.get().models == ["qwen3-8b-v2", "later-70b"]


def test_any_bound_changes_and_the_rest_stays(key, team_owner):
    ChangeKey(by(team_owner), key, {"concurrent": 4, "models": ["qwen3-8b-v1"]}).run()
    ChangeKey(by(team_owner), key, {"concurrent": None}).run()
    key.refresh_from_db()
    assert (key.concurrent, key.models, key.name) == (None, ["qwen3-8b-v1"], "production")
    last = AuditEvent.objects.filter(verb="key.change").first()
    assert (last.before, last.after) == ({"concurrent": 4}, {"concurrent": None})


def test_a_change_of_nothing_leaves_no_audit_row(key, team_owner):
    ChangeKey(by(team_owner), key, {"name": "production", "addresses": []}).run()
    assert not AuditEvent.objects.exists()


def test_an_expired_key_works_again_with_a_later_end(business, team_owner):
    key = KeyFactory(business=business, expires_at=timezone.now() - timedelta(days=1))
    assert key.state == KeyState.EXPIRED
    ChangeKey(by(team_owner), key, {"name": "still over", "expires_at": key.expires_at}).run()
    key = ChangeKey(by(team_owner), key, {"expires_at": timezone.now() + timedelta(days=1)}).run()
    assert key.state == KeyState.ACTIVE


def test_disable_and_enable(key, team_owner):
    assert DisableKey(by(team_owner), key).run().state == KeyState.DISABLED
    with pytest.raises(Conflict) as refused:
        DisableKey(by(team_owner), key).run()
    assert refused.value.code == "key_disabled"
    assert EnableKey(by(team_owner), key).run().state == KeyState.ACTIVE
    with pytest.raises(Conflict):
        EnableKey(by(team_owner), key).run()


def test_revoked_is_for_good(key, team_owner):
    RevokeKey(by(team_owner), key).run()
    key.refresh_from_db()
    assert key.state == KeyState.REVOKED
    for action in (
        RevokeKey(by(team_owner), key),
        EnableKey(by(team_owner), key),
        DisableKey(by(team_owner), key),
        ChangeKey(by(team_owner), key, {"name": "again"}),
        RotateKey(by(team_owner), key),
    ):
        with pytest.raises(Conflict) as refused:
            action.run()
        assert refused.value.code == "key_revoked"


def test_rotation_gives_a_successor_with_the_same_bounds_and_both_work(business, team_owner):
    old = KeyFactory(
        business=business,
        models=["qwen3-8b-v1"],
        addresses=["10.0.0.0/8"],
        concurrent=4,
        expires_at=timezone.now() + timedelta(days=30),
    )
    issued = RotateKey(by(team_owner), old, overlap=timedelta(days=3)).run()
    old.refresh_from_db()
    new = issued.key
    assert (new.models, new.addresses, new.concurrent) == (["qwen3-8b-v1"], ["10.0.0.0/8"], 4)
    assert timedelta(days=29) < new.expires_at - timezone.now() < timedelta(days=31)
    assert (new.predecessor, old.successor) == (old, new)
    assert (old.state, new.state) == (KeyState.ROTATING, KeyState.ACTIVE)
    assert old.usable and new.usable
    assert timedelta(days=2, hours=23) < old.ends_at - timezone.now() <= timedelta(days=3)
    assert issued.secret not in everything_written()
    with pytest.raises(Conflict) as refused:
        RotateKey(by(team_owner), old).run()
    assert refused.value.code == "key_has_successor"


def test_an_overlap_of_nothing_ends_the_old_key_at_once(key, team_owner):
    RotateKey(by(team_owner), key, overlap=timedelta(0)).run()
    key.refresh_from_db()
    assert key.state == KeyState.ROTATED
    with pytest.raises(Invalid):
        RotateKey(by(team_owner), KeyFactory(business=key.business), overlap=timedelta(days=91)).run()


def test_the_overlap_may_be_made_longer_but_not_to_end_at_once(key, team_owner):
    issued = RotateKey(by(team_owner), key, overlap=timedelta(days=1)).run()
    later = timezone.now() + timedelta(days=9)
    assert ChangeKey(by(team_owner), key, {"overlap_ends_at": later}).run().overlap_ends_at == later
    key.refresh_from_db()
    for end, code in ((timezone.now(), "key_would_end"), (None, "key_has_successor")):
        with pytest.raises(Conflict) as refused:
            ChangeKey(by(team_owner), key, {"overlap_ends_at": end}).run()
        assert refused.value.code == code
    with pytest.raises(Conflict) as refused:
        ChangeKey(by(team_owner), issued.key, {"overlap_ends_at": later}).run()
    assert refused.value.code == "key_not_rotated"


def test_a_key_whose_successor_was_revoked_stays_or_is_rotated_again(key, team_owner):
    first = RotateKey(by(team_owner), key).run().key
    RevokeKey(by(team_owner), first).run()
    key.refresh_from_db()
    assert ChangeKey(by(team_owner), key, {"overlap_ends_at": None}).run().state == KeyState.ACTIVE
    second = RotateKey(by(team_owner), key).run().key
    key.refresh_from_db()
    assert key.successor == second


def test_a_replaced_key_is_safe_to_remove_once_it_is_quiet_and_the_new_one_is_used(key, team_owner):
    successor = RotateKey(by(team_owner), key).run().key
    key = Key.objects.get(pk=key.pk)
    Key.objects.filter(pk=key.pk).update(last_used_at=timezone.now() - timedelta(days=2))
    assert not Key.objects.get(pk=key.pk).safe_to_remove  # the new one is not in use yet
    Key.objects.filter(pk=successor.pk).update(last_used_at=timezone.now())
    assert Key.objects.get(pk=key.pk).safe_to_remove
    Key.objects.filter(pk=key.pk).update(last_used_at=timezone.now() - timedelta(hours=1))
    assert not Key.objects.get(pk=key.pk).safe_to_remove


def test_keys_that_expire_soon(business):
    soon = KeyFactory(business=business, expires_at=timezone.now() + timedelta(days=13))
    KeyFactory(business=business, expires_at=timezone.now() + timedelta(days=15))
    KeyFactory(business=business, expires_at=timezone.now() - timedelta(days=1))
    KeyFactory(business=business, expires_at=timezone.now() + timedelta(days=1), disabled_at=timezone.now())
    KeyFactory(
        business=business,
        expires_at=timezone.now() + timedelta(days=1),
        overlap_ends_at=timezone.now() + timedelta(days=1),
    )
    KeyFactory(business=business)
    assert list(Key.objects.expiring_soon()) == [soon]
    assert [key for key in Key.objects.all() if key.expires_soon] == [soon]


def test_an_existing_secret_is_taken_over_by_its_digest(business, team_owner):
    key = ImportKey(by(team_owner), business, "from the old gateway", f' "{STRONG}" \n', concurrent=2).run()
    assert bytes(key.digest) == keyformat.digest(STRONG, settings.KVADMIN_PEPPER)
    assert (key.public_id, key.hint, key.masked, key.concurrent) == (None, STRONG[-4:], f"…{STRONG[-4:]}", 2)
    assert STRONG not in everything_written()
    assert STRONG not in repr(ImportKey(by(team_owner), business, "again", STRONG))
    with pytest.raises(Invalid) as refused:
        ImportKey(by(team_owner), business, "again", STRONG).run()
    assert STRONG not in str(refused.value.errors)


def test_a_key_of_another_installation_keeps_its_public_id(business, team_owner):
    public_id, secret = keyformat.new_key()
    assert ImportKey(by(team_owner), business, "from there", secret).run().public_id == public_id


@pytest.mark.parametrize(
    "secret",
    [
        "EMPTY",
        "",
        "sk-1234567890abcdefghijkl",
        "a" * 40,
        "abcabcabcabcabcabcabcabc",
        f"{STRONG} 7",
        f"{STRONG}ü",
    ],
)
def test_a_weak_secret_is_refused_with_reasons(secret, business, team_owner):
    with pytest.raises(Invalid) as refused:
        ImportKey(by(team_owner), business, "production", secret).run()
    assert len(refused.value.errors["secret"]) >= 2
    assert not secret or secret not in " ".join(refused.value.errors["secret"])
    assert not Key.objects.exists()


def test_businesses_have_names_of_their_own_within_a_team(team, business, team_owner):
    with pytest.raises(Invalid):
        CreateBusiness(by(team_owner), team, "Shop").run()
    other = CreateBusiness(by(team_owner), team, "support", "Answers mail").run()
    with pytest.raises(Invalid):
        ChangeBusiness(by(team_owner), other, name="shop").run()
    ChangeBusiness(by(team_owner), other, description="").run()
    other.refresh_from_db()
    assert (other.name, other.description) == ("support", "")


def test_a_business_goes_only_to_a_team_that_one_owns(business, team_owner, administrator):
    elsewhere = TeamFactory()
    with pytest.raises(Denied):
        ChangeBusiness(by(team_owner), business, team=elsewhere).run()
    ChangeBusiness(by(administrator), business, team=elsewhere).run()
    assert Business.objects.get().team == elsewhere


def test_a_business_with_living_keys_is_not_removed(key, business, team_owner):
    with pytest.raises(Conflict) as refused:
        RemoveBusiness(by(team_owner), business).run()
    assert refused.value.code == "business_has_keys"
    RevokeKey(by(team_owner), key).run()
    RemoveBusiness(by(team_owner), business).run()
    assert not Business.objects.exists()
    assert AuditEvent.objects.get(verb="business.remove").after == {}
