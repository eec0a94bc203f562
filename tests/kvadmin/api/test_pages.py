"""Pages of a list: by keyset, stable while rows come and go."""

from __future__ import annotations

import pytest

from kvadmin.models import AuditEvent
from tests.support.api import Api, assert_problem


@pytest.fixture
def api(administrator):
    api = Api(administrator)
    AuditEvent.objects.all().delete()
    return api


def add(*names):
    for name in names:
        AuditEvent.objects.create(actor_name=name, source="web", verb="x.y")


def names(page):
    return [row["actor_name"] for row in page["results"]]


def test_it_goes_forth_and_back(api):
    add(*"abcde")
    first = api.get("audit/?limit=2").json()
    assert (names(first), first["previous"]) == (["e", "d"], None)
    second = api.get(first["next"]).json()
    assert names(second) == ["c", "b"]
    third = api.get(second["next"]).json()
    assert (names(third), third["next"]) == (["a"], None)
    assert names(api.get(third["previous"]).json()) == ["c", "b"]
    back = api.get(api.get(third["previous"]).json()["previous"]).json()
    assert (names(back), back["previous"]) == (["e", "d"], None)


def test_new_rows_shift_nothing(api):
    add(*"abcd")
    first = api.get("audit/?limit=2").json()
    add("new1", "new2")
    assert names(api.get(first["next"]).json()) == ["b", "a"]


def test_deleted_rows_shift_nothing(api):
    add(*"abcd")
    first = api.get("audit/?limit=2").json()
    AuditEvent.objects.filter(actor_name__in=["d", "c"]).delete()
    assert names(api.get(first["next"]).json()) == ["b", "a"]


def test_links_keep_the_filters(api):
    add(*"ababab")
    page = api.get("audit/?limit=2&actor=a").json()
    assert names(api.get(page["next"]).json()) == ["a"]


def test_the_list_is_empty_without_links(api):
    assert api.get("audit/").json() == {"next": None, "previous": None, "results": []}


@pytest.mark.parametrize("limit", ["0", "-1", "201", "x", "", "1e3", "99999999999999999999", "٣"])
def test_a_limit_out_of_bounds_is_refused(api, limit):
    assert_problem(api.get(f"audit/?limit={limit}"), 400, "invalid", "limit")


@pytest.mark.parametrize("cursor", ["", "x", "%00", "YQ", "YTAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA", "é", "Yzox"])
def test_a_foreign_cursor_is_refused(api, cursor):
    assert_problem(api.get(f"audit/?cursor={cursor}"), 400, "invalid", "cursor")
