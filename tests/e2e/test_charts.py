"""Charts in a real browser, under the real Content-Security-Policy."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.db import connection
from django.utils import timezone
from playwright.sync_api import Page, expect

from engines.choices import EngineState
from engines.metrics.rollup import roll_up
from engines.metrics.store import Polled, Sample, SampleStore, mark_polled
from engines.models import Engine
from tests.e2e.pages import RULES, THEMES, WIDTHS, shoot, sticking_out
from tests.engines.metrics.readings import histogram
from tests.support.factories import EngineFactory

pytestmark = pytest.mark.browser


def read(engine: Engine, usage: float) -> None:
    """One more reading, as the poller writes it."""
    now = timezone.now()
    values = {"kv_usage_ratio": usage, "requests_running": 14.0, "requests_waiting": 3.0}
    SampleStore().write([Sample(engine.pk, now, values)])
    mark_polled([Polled(engine.pk, now, now, True)])


@pytest.fixture
def engine(transactional_db):
    engine = EngineFactory(name="qwen3-8b-v1", observed=EngineState.STARTING)
    now = timezone.now()
    samples = []
    for number in range(240):
        if 100 <= number < 130:
            continue
        buckets = histogram(number, 2 * number, 3 * number, 4 * number)
        values = {
            "kv_usage_ratio": 0.5 + 0.4 * (number % 60) / 60,
            "requests_running": float(number % 9),
            "requests_waiting": float(number % 3),
            "prompt_tokens": 900.0 * number,
            "generation_tokens": 50.0 * number,
            "prefix_cache_queries": 900.0 * number,
            "prefix_cache_hits": 600.0 * number,
        }
        histograms = dict.fromkeys(("ttft", "inter_token_latency", "e2e_latency"), buckets)
        at = now - timedelta(seconds=1200 - 5 * number)
        samples.append(Sample(engine.pk, at, values, histograms if number % 10 == 0 else {}))
    SampleStore().write(samples)
    roll_up(now)
    engine.move(EngineState.READY, only_from=(EngineState.STARTING,))
    mark_polled([Polled(engine.pk, now, now, True)])
    yield engine
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE engines_sample, engines_minute, engines_hour")
        cursor.execute("UPDATE engines_rollup SET upto = NULL")


def usage_chart(page: Page):
    return page.locator('.chart[data-chart-url*="kv_usage"]')


def drawn(page: Page) -> int:
    return int(usage_chart(page).get_attribute("data-drawn") or 0)


@pytest.fixture
def charts(page, sign_in_as, operator, engine) -> Page:
    sign_in_as(operator)
    page.goto(f"/engines/{engine.pk}/?range=15m")
    expect(usage_chart(page)).to_have_attribute("data-drawn", re.compile(r"\d+"), timeout=60_000)
    return page


def test_it_draws_lines_bands_and_marks_without_breaking_the_policy(charts):
    """The ``page`` fixture fails the test if the browser complains of anything."""
    chart = usage_chart(charts)
    assert chart.locator(".scatterlayer .trace").count() == 3
    assert chart.locator(".shapelayer path").count() >= 4
    expect(chart.locator(".annotation-text").first).to_have_text(re.compile("Ready"))
    assert chart.locator("svg.main-svg").first.evaluate("e => getComputedStyle(e).position") == "absolute"
    assert "from 50% to" in (chart.get_attribute("aria-label") or "")


def test_a_gap_is_drawn_as_a_gap(charts):
    usage = usage_chart(charts).locator(".scatterlayer .trace").first
    assert usage.locator("path.js-line").count() == 2


def test_colours_follow_the_theme(charts):
    line = usage_chart(charts).locator(".scatterlayer .trace path.js-line").first
    light = line.evaluate("e => getComputedStyle(e).stroke")
    charts.emulate_media(color_scheme="dark")
    charts.wait_for_function(
        "([selector, before]) => getComputedStyle(document.querySelector(selector)).stroke !== before",
        arg=['.chart[data-chart-url*="kv_usage"] .scatterlayer .trace path.js-line', light],
    )


#: how far, in pixels, the ends of a chart's lines lie from where the axes put their values
ASTRAY = """chart => Math.max(...[...chart.querySelectorAll(".scatterlayer .trace")].map((drawn) => {
  const lines = drawn.querySelectorAll("path.js-line");
  const last = lines[lines.length - 1];
  const end = last.getPointAtLength(last.getTotalLength()).matrixTransform(last.getScreenCTM());
  const frame = chart.querySelector("svg.main-svg").getBoundingClientRect();
  const trace = drawn.__data__[0].trace;
  const x = chart._fullLayout[trace.xaxis.replace("x", "xaxis")];
  const y = chart._fullLayout[trace.yaxis.replace("y", "yaxis")];
  const at = trace.y.findLastIndex((value) => value !== null);
  const [right, value] = [trace.x[at], trace.y[at]];
  return Math.max(
    Math.abs(end.x - frame.left - x._offset - x.d2p(right)),
    Math.abs(end.y - frame.top - y._offset - y.d2p(value)),
  );
}))"""


def test_lines_lie_where_their_axes_say_after_changes_of_theme_and_size(charts, engine):
    before = drawn(charts)
    for number in range(6):
        charts.set_viewport_size({"width": 1440 - 100 * number, "height": 900 + 300 * number})
        charts.emulate_media(color_scheme="dark" if number % 2 else "light")
    read(engine, 0.61)
    charts.wait_for_function(
        "([selector, before]) => Number(document.querySelector(selector).dataset.drawn) > before + 1",
        arg=['.chart[data-chart-url*="kv_usage"]', before],
    )
    charts.wait_for_timeout(500)
    for chart in charts.locator('.chart[data-drawn]:not([data-drawn="0"])').all():
        if chart.locator(".scatterlayer path.js-line").count():
            assert chart.evaluate(ASTRAY) < 3, chart.get_attribute("data-chart-url")


def test_a_range_switches_every_chart_and_the_address(charts):
    with charts.expect_response(re.compile(r"kv_usage\.json\?range=24h")):
        charts.get_by_role("button", name="24 h").click()
    assert "range=24h" in charts.url
    expect(charts.get_by_role("button", name="24 h")).to_have_attribute("aria-pressed", "true")
    expect(charts.get_by_role("button", name="15 min")).to_have_attribute("aria-pressed", "false")


def test_a_new_reading_arrives_by_itself_and_the_zoom_stays(charts, engine):
    chart = usage_chart(charts)
    chart.scroll_into_view_if_needed()
    box = chart.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    charts.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    charts.mouse.down()
    charts.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 42, steps=5)
    charts.mouse.up()
    zoomed = chart.evaluate("e => e.layout.xaxis.range.join()")
    before = drawn(charts)
    read(engine, 0.99)
    charts.wait_for_function(
        "([selector, before]) => Number(document.querySelector(selector).dataset.drawn) > before",
        arg=['.chart[data-chart-url*="kv_usage"]', before],
        timeout=30_000,
    )
    assert "99%" in (chart.get_attribute("aria-label") or "")
    assert chart.evaluate("e => e.layout.xaxis.range.join()") == zoomed


def test_the_same_is_there_as_a_table(charts):
    card = charts.locator(".chart-card", has=usage_chart(charts))
    card.get_by_text("Show as a table").click()
    expect(card.locator("thead th")).to_have_text(["Time", "KV cache usage", "Running", "Waiting"])
    assert card.locator("tbody tr").count() > 100


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_in_the_charts(charts, theme, width):
    pixels, height = WIDTHS[width]
    charts.set_viewport_size({"width": pixels, "height": height})
    before = drawn(charts)
    charts.emulate_media(color_scheme=theme, reduced_motion="reduce")
    if theme == "dark":  # light is what is drawn already
        expect(usage_chart(charts)).not_to_have_attribute("data-drawn", str(before), timeout=30_000)
    charts.get_by_text("Show as a table").first.click()
    found = Axe().run(charts, context={"include": [[".chart-card"]]}, options=RULES).response["violations"]
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []
    assert sticking_out(charts) == []
    shoot(charts, f"charts-{width}-{theme}")
