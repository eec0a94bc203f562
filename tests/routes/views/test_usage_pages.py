"""Usage on the pages of keys, teams and routes, and over the API: what one may see, and the right sums."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from routes.models import Key
from routes.usage.rollup import roll_up
from tests.routes.usage.support import NOON, store, usage
from tests.support.api import Api, assert_problem
from tests.support.route_factories import BusinessFactory, KeyFactory, RouteFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def route(db):
    return RouteFactory(name="qwen3-8b-v1")


@pytest.fixture
def key(team, route):
    return KeyFactory(
        business=BusinessFactory(team=team, name="shop"), name="production", monthly_tokens=100_000
    )


def request_of(key: Key, ago: timedelta, **values):
    """A row that began so long ago."""
    moment = timezone.now() - ago
    given = {
        "key_id": key.pk,
        "business_id": key.business_id,
        "team_id": key.business.team_id,
        "prompt_tokens": 1000,
        "cached_tokens": 400,
        "completion_tokens": 50,
        "total_s": 1.2,
        "first_byte_s": 0.2,
        **values,
    }
    return usage((moment - NOON).total_seconds(), **given)


@pytest.fixture
def rows(key, route):
    named = {"route_id": route.pk, "model": route.name}
    other = KeyFactory(name="somebody else's")
    store(
        request_of(key, timedelta(minutes=10), **named, streamed=True),
        request_of(key, timedelta(hours=2), **named),
        request_of(
            key,
            timedelta(hours=3),
            **named,
            status=429,
            error_layer="gateway",
            error_code="rate_limit_exceeded",
            prompt_tokens=0,
            cached_tokens=0,
            completion_tokens=0,
            tokens_source="",
        ),
        request_of(key, timedelta(days=3), **named),
        request_of(other, timedelta(minutes=5), **named),
    )
    roll_up(timezone.now() - timedelta(hours=1))
    return {"key": key, "other": other}


def text_of(response) -> str:
    return response.content.decode()


@pytest.mark.parametrize("person", ["team_owner", "team_member", "operator"])
def test_a_keys_page_sums_its_usage(person, rows, client, request):
    client.force_login(request.getfixturevalue(person))
    page = client.get(f"/keys/{rows['key'].pk}/")
    usage_ = page.context["usage"]
    assert (usage_.requests, usage_.failed_gateway, usage_.prompt_tokens) == (3, 1, 2000)
    assert [(row["name"], row["usage"].requests) for row in page.context["rows"]] == [("qwen3-8b-v1", 3)]
    text = text_of(page)
    for part in ("2,000", "800 of them cached", "rate_limit_exceeded", "1 to 1.5 s", "used this month"):
        assert part in text, part
    assert client.get(f"/keys/{rows['key'].pk}/?range=7d").context["usage"].requests == 4
    assert client.get(f"/keys/{rows['key'].pk}/?range=nonsense").context["span"] == "24h"


def test_a_key_without_requests_says_so(key, team_owner, client):
    client.force_login(team_owner)
    assert "No requests in this range" in text_of(client.get(f"/keys/{key.pk}/"))


@pytest.mark.parametrize("what", ["requests", "tokens", "latency"])
def test_charts_have_a_point_for_each_hour_or_day(what, rows, team_member, client):
    client.force_login(team_member)
    for span, points in (("24h", 25), ("7d", 169), ("30d", 31)):
        answer = client.get(f"/keys/{rows['key'].pk}/usage/{span}/{what}/").json()
        assert len(answer["data"][0]["x"]) in {points - 1, points, points + 1}
        assert answer["empty"] is False
        assert answer["table"]["rows"]
    if what == "requests":
        assert sum(answer["data"][0]["y"]) == 4
        assert sum(answer["data"][1]["y"]) == 1
    for wrong in ("2y/requests", "24h/nonsense"):
        assert client.get(f"/keys/{rows['key'].pk}/usage/{wrong}/").status_code == 404


@pytest.mark.parametrize("person", ["viewer", "outsider"])
def test_outsiders_find_no_usage(person, rows, client, request):
    client.force_login(request.getfixturevalue(person))
    key = rows["key"]
    for url in (
        f"/keys/{key.pk}/",
        f"/keys/{key.pk}/usage/24h/requests/",
        f"/teams/{key.business.team_id}/usage/",
        f"/teams/{key.business.team_id}/usage/24h/requests/",
    ):
        assert client.get(url).status_code == 404, url


def test_a_teams_usage_by_business_key_and_model(rows, team_member, client):
    client.force_login(team_member)
    url = f"/teams/{rows['key'].business.team_id}/usage/"
    assert [row["name"] for row in client.get(url).context["rows"]] == ["shop"]
    assert [row["name"] for row in client.get(f"{url}?by=key").context["rows"]] == [str(rows["key"])]
    assert [row["name"] for row in client.get(f"{url}?by=model").context["rows"]] == ["qwen3-8b-v1"]
    assert client.get(f"{url}24h/tokens/").json()["empty"] is False


def test_a_routes_page_names_keys_only_to_those_who_see_them(rows, route, viewer, operator, client):
    client.force_login(operator)
    page = client.get(route.get_absolute_url())
    assert page.context["usage"].requests == 4
    assert "somebody else" in text_of(page)
    client.force_login(viewer)
    page = client.get(route.get_absolute_url())
    assert "somebody else" not in text_of(page) and "production" not in text_of(page)
    assert client.get(f"{route.get_absolute_url()}usage/24h/requests/").status_code == 200


def test_usage_over_the_api(rows, team_member, operator):
    key = rows["key"]
    mine = Api(team_member).get("usage/").json()
    assert (mine["total"]["requests"], mine["total"]["failed_gateway"]) == (3, 1)
    assert mine["total"]["latency"]["p50"] == pytest.approx(1.25, abs=0.25)
    assert [row["of"] for row in mine["by"]] == ["qwen3-8b-v1"]
    assert mine["errors"] == [{"layer": "gateway", "code": "rate_limit_exceeded", "requests": 1}]
    assert sum(row["requests"] for row in mine["series"]) == 3
    assert Api(operator).get("usage/").json()["total"]["requests"] == 4
    assert Api(operator).get(f"usage/?key={key.pk}&by=business").json()["by"][0]["of"] == key.business_id
    week = (timezone.now() - timedelta(days=7)).isoformat().replace("+00:00", "Z")
    assert Api(team_member).get(f"usage/?since={week}&step=day").json()["total"]["requests"] == 4


def test_the_api_shows_no_usage_of_others(rows, team_member, outsider):
    assert Api(outsider).get("usage/").json()["total"]["requests"] == 0
    for query in (f"key={rows['key'].pk}", f"team={rows['key'].business.team_id}"):
        assert_problem(Api(outsider).get(f"usage/?{query}"), 400, "invalid", query.partition("=")[0])
    other = rows["other"]
    assert_problem(Api(team_member).get(f"usage/?key={other.pk}"), 400, "invalid", "key")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("step=minute&since=2026-01-01T00:00:00Z", "since"),
        ("since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "since"),
        ("since=yesterday", "since"),
        ("step=week", "step"),
        ("by=engine", "by"),
        ("key=first", "key"),
        ("nonsense=1", "nonsense"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(query, field, operator):
    assert_problem(Api(operator).get(f"usage/?{query}"), 400, "invalid", field)


def test_moments_are_whole_hours(rows, team_member):
    series = Api(team_member).get("usage/").json()["series"]
    assert {datetime.fromisoformat(row["at"]).minute for row in series} == {0}
