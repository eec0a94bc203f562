"""Queries that nobody types: no page of the console fails over one."""

from __future__ import annotations

import re

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from engines.choices import HostAuth, HostKind
from engines.models import EngineStart
from tests.support.factories import EngineFactory, HostFactory, OperationFactory

#: NUL, a digit that is none to int(), numbers larger than a column and than int() reads, a far date
VALUES = ["\0", "a\0b", "²", "-1", "9" * 18, "9" * 30, "9" * 5000, "1e400", "0001-01-01T00:00:00+14:00"]
#: the parameters that pages of the console read
NAMES = [
    "actor",
    "after",
    "archived",
    "before",
    "code",
    "copy",
    "count",
    "engine",
    "environment",
    "from",
    "host",
    "kind",
    "left",
    "mark",
    "next",
    "q",
    "range",
    "revision",
    "revisions",
    "right",
    "role",
    "shape",
    "show",
    "since",
    "start",
    "state",
    "subject",
    "to",
    "until",
    "verb",
    "view",
]
PLACE = re.compile(r"<(?:(?P<kind>\w+):)?(?P<name>\w+)>")


def routes(patterns: list, prefix: str = "") -> list[str]:
    found = []
    for one in patterns:
        route = prefix + str(one.pattern)
        if isinstance(one, URLResolver):
            found += routes(one.url_patterns, route)
        elif isinstance(one, URLPattern):
            found.append(route)
    return found


#: without the API, which has a test of its own
PAGES = sorted(one for one in routes(get_resolver().url_patterns) if "(?P" not in one and "^" not in one)


@pytest.fixture
def ids(administrator, tmp_path):
    host = HostFactory(kind=HostKind.LOCAL, auth=HostAuth.NONE, address="", work_dir=str(tmp_path))
    engine = EngineFactory(host=host)
    log = tmp_path / "log"
    log.write_text("one line\n")
    EngineStart.objects.create(engine=engine, number=1, log_path=str(log), revision=engine.revision)
    return {
        "hosts": host.pk,
        "engines": engine.pk,
        "profiles": engine.revision.profile_id,
        "users": administrator.pk,
        "uuid": OperationFactory(host=host, engine=engine).uuid,
        "verb": "start",
        "name": "kv_usage",
        "provider_id": "none",
    }


@pytest.mark.parametrize("page", PAGES)
def test_no_page_fails_over_a_query(client, administrator, ids, page):
    client.force_login(administrator)
    kind = page.split("/")[0]
    address = "/" + PLACE.sub(lambda place: str(ids.get(place["name"]) or ids.get(kind, 1)), page)
    for value in VALUES:
        response = client.get(address, dict.fromkeys(NAMES, value))
        assert response.status_code < 500 or response.status_code == 503, (value[:40], response.content[:500])
