from __future__ import annotations

from datetime import timedelta

import plotly.graph_objects as go
import pytest
from django.urls import reverse
from django.utils import timezone

from engines.charts.registry import CHARTS
from engines.choices import EngineState
from engines.metrics.rollup import roll_up
from engines.metrics.store import Polled, Sample, SampleStore, mark_polled
from engines.models import Engine, EngineStart
from tests.engines.metrics.readings import histogram
from tests.support.factories import EngineFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def engine(db) -> Engine:
    """An engine with ten minutes of readings, and a gap in them."""
    engine = EngineFactory(observed=EngineState.STARTING)
    now = timezone.now()
    samples = []
    for number in range(120):
        if 40 <= number < 60:
            continue
        buckets = histogram(number, 2 * number, 3 * number, 4 * number)
        samples.append(
            Sample(
                engine.pk,
                now - timedelta(seconds=600 - 5 * number),
                {
                    "kv_usage_ratio": number / 120,
                    "requests_running": float(number % 7),
                    "requests_waiting": 0.0,
                    "prompt_tokens": 100.0 * number,
                    "generation_tokens": 10.0 * number,
                    "prefix_cache_queries": 100.0 * number,
                    "prefix_cache_hits": 71.0 * number,
                },
                {"ttft": buckets, "inter_token_latency": buckets} if number % 10 == 0 else {},
            )
        )
    SampleStore().write(samples)
    mark_polled([Polled(engine.pk, now, samples[-1].taken_at, True)])
    roll_up(now)
    engine.move(EngineState.READY, only_from=(EngineState.STARTING,))
    return engine


def url(engine: Engine, name: str = "kv_usage", **query: str) -> str:
    return reverse("engines:engine_chart", args=[engine.pk, name], query=query or None)


@pytest.mark.parametrize("person", ["operator", "viewer"])
def test_those_who_see_engines_see_their_charts(client, request, person, engine):
    client.force_login(request.getfixturevalue(person))
    response = client.get(url(engine))
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "application/json"


def test_an_outsider_sees_none(client, outsider, engine):
    client.force_login(outsider)
    assert client.get(url(engine)).status_code == 403


def test_anonymous_people_sign_in_first(client, engine):
    response = client.get(url(engine))
    assert response.status_code == 302
    assert "login" in response.headers["Location"]


@pytest.mark.parametrize("name", list(CHARTS))
@pytest.mark.parametrize("span", ["15m", "3h", "24h", "7d", "30d"])
def test_every_chart_is_a_figure_that_plotly_takes(client, viewer, engine, name, span):
    client.force_login(viewer)
    payload = client.get(url(engine, name, range=span)).json()
    figure = go.Figure({"data": payload["data"], "layout": payload["layout"]})
    assert figure.data
    for trace in payload["data"]:
        assert len(trace["x"]) == len(trace["y"]) <= 850
        assert trace["type"] == "scatter"
    for row in payload["table"]["rows"]:
        assert len(row) == len(payload["table"]["columns"]) + 1
    assert payload["summary"]


def test_usage_has_its_bands_and_the_requests_share_its_time_axis(client, viewer, engine):
    client.force_login(viewer)
    payload = client.get(url(engine, range="15m")).json()
    shapes = {(shape["type"], shape.get("y0"), shape.get("y1")) for shape in payload["layout"]["shapes"]}
    assert {("rect", 0.7, 0.9), ("line", 0.5, 0.5), ("line", 0.9, 0.9)} <= shapes
    names = {trace["name"]: trace for trace in payload["data"]}
    assert {"KV cache usage", "running", "waiting"} <= names.keys()
    assert names["running"]["yaxis"] == "y2"
    assert all("xaxis" not in trace for trace in payload["data"])


def test_a_gap_is_a_gap(client, viewer, engine):
    client.force_login(viewer)
    payload = client.get(url(engine, range="15m")).json()
    usage = next(trace for trace in payload["data"] if trace["name"] == "KV cache usage")
    assert usage["y"].count(None) == 1
    assert usage["connectgaps"] is False
    assert 0 not in usage["y"][1:]


def test_starts_are_marked(client, viewer, engine):
    client.force_login(viewer)
    payload = client.get(url(engine, range="15m")).json()
    assert [words["text"] for words in payload["layout"]["annotations"]] == ["Ready"]


@pytest.mark.parametrize(
    ("minutes", "shown", "asked"), [(1, 5, "3h"), (20, 20, "3h"), (20, 15, "15m"), (600, 180, "3h")]
)
def test_a_range_reaches_back_no_further_than_the_engine_s_life(
    client, viewer, engine, minutes, shown, asked
):
    start = EngineStart.objects.create(engine=engine, number=1)
    EngineStart.objects.filter(pk=start.pk).update(created_at=timezone.now() - timedelta(minutes=minutes))
    client.force_login(viewer)
    begin, end = client.get(url(engine, range=asked)).json()["layout"]["xaxis"]["range"]
    assert round((end - begin) / 60_000) == shown


def test_an_engine_without_readings_says_so(client, viewer):
    client.force_login(viewer)
    payload = client.get(url(EngineFactory())).json()
    assert payload["empty"] is True
    assert payload["table"]["rows"] == []
    assert "no readings" in payload["summary"]


def test_nothing_new_is_304_and_a_new_reading_is_not(client, viewer, engine):
    client.force_login(viewer)
    first = client.get(url(engine, range="15m"))
    again = client.get(url(engine, range="15m"), headers={"If-None-Match": first.headers["ETag"]})
    if again.status_code == 200:  # the clock's half minute passed between the two
        again = client.get(url(engine, range="15m"), headers={"If-None-Match": again.headers["ETag"]})
    assert again.status_code == 304
    assert again.content == b""
    mark_polled([Polled(engine.pk, timezone.now(), timezone.now(), True)])
    newer = client.get(url(engine, range="15m"), headers={"If-None-Match": again.headers["ETag"]})
    assert newer.status_code == 200


def test_the_zoom_is_kept_while_the_range_stays(client, viewer, engine):
    client.force_login(viewer)
    one, two, other = (
        client.get(url(engine, range=span)).json()["layout"]["uirevision"] for span in ("3h", "3h", "24h")
    )
    assert one == two != other


def test_a_span_of_the_readers_own(client, viewer, engine):
    client.force_login(viewer)
    now = timezone.now()
    start = (now - timedelta(minutes=5)).isoformat()
    payload = client.get(url(engine, **{"from": start, "to": now.isoformat()})).json()
    low, high = payload["layout"]["xaxis"]["range"]
    assert high - low == pytest.approx(300_000, abs=2)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"range": "2w"}, "Choose a range"),
        ({"from": "yesterday"}, "such as 2026"),
        ({"from": "2026-13-45T99:00:00Z"}, "such as 2026"),
        ({"from": "2026-05-04T12:00:00Z", "to": "2026-05-04T11:00:00Z"}, "after its beginning"),
        ({"from": "2000-01-01T00:00:00Z"}, "longer than readings are kept"),
    ],
)
def test_a_span_that_cannot_be_shown_is_refused_in_words(client, viewer, engine, query, words):
    client.force_login(viewer)
    response = client.get(url(engine, **query))
    assert response.status_code == 400
    assert words in response.json()["detail"]


def test_unknown_charts_and_engines_are_not_found(client, viewer, engine):
    client.force_login(viewer)
    assert client.get(url(engine, "nothing")).status_code == 404
    assert client.get(reverse("engines:engine_chart", args=[0, "kv_usage"])).status_code == 404


def test_plotly_comes_from_its_package():
    from django.contrib.staticfiles import finders

    found = finders.find("vendor/plotly.min.js")
    assert found is not None
    assert "site-packages" in found
    assert ("plotly.min.js", "vendor") in [
        (name, storage.prefix)
        for finder in finders.get_finders()
        for name, storage in finder.list([])
        if getattr(storage, "prefix", "") == "vendor"
    ]
