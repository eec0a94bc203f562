"""The gateway is woken by every change of what it keeps, however it is made, and by nothing else."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from engines.choices import EngineState
from engines.models import Engine, Host
from routes.models import Business, Key, Route, Target
from tests.support.route_factories import (
    BusinessFactory,
    KeyFactory,
    RouteFactory,
    TargetFactory,
    TeamFactory,
)


@pytest.fixture
def heard(transactional_db):
    """Call it for the payloads that came since the last call."""
    settings = connection.get_connection_params()
    listener = psycopg.connect(
        **{
            name: settings[name]
            for name in ("host", "port", "user", "password", "dbname")
            if settings.get(name)
        },
        autocommit=True,
    )
    listener.execute("LISTEN kvadmin_gateway")

    def payloads() -> list[str]:
        return [notice.payload for notice in listener.notifies(timeout=0.2)]

    yield payloads
    listener.close()


def test_a_key_made_changed_and_removed_is_told_by_its_id(heard):
    key = KeyFactory()
    assert heard() == [f"key {key.pk}"]
    Key.objects.filter(pk=key.pk).update(revoked_at=timezone.now())
    assert heard() == [f"key {key.pk}"]
    Key.objects.filter(pk=key.pk).delete()
    assert heard() == [f"key {key.pk}"]


def test_a_keys_last_use_wakes_nobody(heard):
    key = KeyFactory()
    heard()
    Key.objects.filter(pk=key.pk).update(last_used_at=timezone.now(), last_used_ip="10.0.0.7")
    assert heard() == []


def test_a_bulk_change_in_plain_sql_is_told(heard):
    keys = [KeyFactory(business=BusinessFactory()) for _n in range(3)]
    quiet = KeyFactory(disabled_at=timezone.now())
    heard()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE routes_key SET disabled_at = coalesce(disabled_at, now())")
    told = heard()
    assert sorted(told) == sorted(f"key {key.pk}" for key in keys)
    assert f"key {quiet.pk}" not in told


def test_very_many_keys_are_told_at_once(heard):
    business = BusinessFactory()
    Key.objects.bulk_create(
        Key(business=business, name=f"k{n}", public_id=f"{n:012}", digest=n.to_bytes(32)) for n in range(501)
    )
    assert heard() == ["all"]


def test_a_business_that_goes_to_another_team_is_told(heard):
    key = KeyFactory()
    heard()
    Business.objects.filter(pk=key.business_id).update(team=TeamFactory())
    assert heard() == ["all"]
    Business.objects.filter(pk=key.business_id).update(description="Search in the shop")
    assert heard() == []


def test_routes_and_targets_are_told(heard):
    route = RouteFactory()
    assert heard() == ["routes"]
    target = TargetFactory(route=route)
    assert heard() == ["routes"]
    Target.objects.filter(pk=target.pk).update(weight=2)
    assert heard() == ["routes"]
    Route.objects.update(enabled=False)
    assert heard() == ["routes"]
    target.delete()
    assert heard() == ["routes"]


def test_an_engine_is_told_when_its_target_changes_but_not_when_it_is_polled(heard):
    engine = TargetFactory().engine
    heard()
    Engine.objects.filter(pk=engine.pk).update(polled_at=timezone.now(), answered_at=timezone.now(), seq=7)
    assert heard() == []
    for change in (
        {"observed": EngineState.READY},
        {"served_names": ["qwen3-8b-v2"]},
        {"max_model_len": 8192},
        {"port": 9001},
        {"api_key": "another"},
    ):
        Engine.objects.filter(pk=engine.pk).update(**change)
        assert heard() == ["routes"], change
    Host.objects.filter(pk=engine.host_id).update(last_seen_at=timezone.now())
    assert heard() == []
    Host.objects.filter(pk=engine.host_id).update(service_address="10.9.9.9")
    assert heard() == ["routes"]
