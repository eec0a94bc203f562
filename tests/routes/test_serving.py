"""Pages and the gateway judge engines alike: which takes requests, and by which name it is asked."""

from __future__ import annotations

import json

import pytest
from django.db import connection

from engines.choices import EngineState
from routes.choices import RouteState
from routes.facts import warnings_of_route
from routes.gateway.records import TargetRecord
from routes.gateway.snapshotrows import ROUTES, TARGETS, routes_by_name
from routes.models import Route
from tests.support.factories import EngineFactory
from tests.support.route_factories import RouteFactory, TargetFactory

#: among the columns of a target: JSON, which Django's connection leaves as text
SERVED_NAMES = 9


def as_the_gateway_sees_it(route: Route) -> TargetRecord:
    targets = [list(row) for row in read(TARGETS)]
    for row in targets:
        row[SERVED_NAMES] = json.loads(row[SERVED_NAMES])
    found = routes_by_name(read(ROUTES), map(tuple, targets), lambda text: "key")
    return found[route.name].targets[0]


def read(sql: str) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


@pytest.mark.django_db
@pytest.mark.parametrize("state", list(EngineState))
def test_a_page_and_the_gateway_agree_on_who_takes_requests(state):
    engine = EngineFactory(observed=state, served_names=["qwen3-8b-v1"])
    route = RouteFactory(name="qwen3-8b-v1")
    target = TargetFactory(route=route, engine=engine)
    takes = as_the_gateway_sees_it(route).state == "ready"
    assert target.takes_requests == takes
    route = Route.objects.get(pk=route.pk)
    assert (route.state == RouteState.SERVING) == takes
    # that an engine is waited for is said of those that are down, not of one that only drains
    assert ("target_not_ready" in {note.code for note in warnings_of_route(route)}) == (
        as_the_gateway_sees_it(route).state == "down"
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "served", "sent"),
    [
        ("", ["qwen3-8b-v1"], "qwen3-8b-v1"),
        ("", ["first", "second"], "first"),
        ("", ["first", "qwen3-8b-v1"], "qwen3-8b-v1"),
        ("", [], "qwen3-8b-v1"),
        ("second", ["first", "second"], "second"),
    ],
)
def test_a_page_and_the_gateway_agree_on_the_name_that_is_sent(given, served, sent):
    engine = EngineFactory(observed=EngineState.READY, served_names=served)
    target = TargetFactory(route=RouteFactory(name="qwen3-8b-v1"), engine=engine, model=given)
    assert target.served_name == sent
    assert as_the_gateway_sees_it(target.route).model == sent
