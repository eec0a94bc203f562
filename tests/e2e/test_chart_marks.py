"""Marks of starts and stops in a chart: their words do not lie over each other."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from engines.choices import EngineState
from engines.models import Transition
from tests.e2e.pages import WIDTHS
from tests.support.factories import EngineFactory

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

OVERLAPS = """() => {
  const words = [...document.querySelectorAll('[data-drawn] .annotation-text')];
  const boxes = words.map((e) => e.getBoundingClientRect());
  return boxes.filter((a, i) => boxes.some((b, j) => i < j && a.left < b.right && b.left < a.right
    && a.top < b.bottom && b.top < a.bottom)).length;
}"""


def test_words_of_marks_close_to_each_other_do_not_overlap(sign_in_as, viewer):
    engine = EngineFactory()
    states = [EngineState.READY, EngineState.FAILED, EngineState.STOPPED, EngineState.READY]
    for number, minutes in enumerate((14, 13.8, 9, 8.9, 3, 1.5, 1.2, 0.1)):
        Transition.objects.create(
            engine=engine,
            from_state=EngineState.STOPPED,
            to_state=states[number % 4],
            at=timezone.now() - timedelta(minutes=minutes),
        )
    page = sign_in_as(viewer)
    for pixels, height in WIDTHS.values():
        page.set_viewport_size({"width": pixels, "height": height})
        page.goto(f"/engines/{engine.pk}/?range=15m")
        expect(page.locator("[data-drawn] .annotation-text").first).to_be_visible()
        assert page.evaluate(OVERLAPS) == 0
        assert page.locator("[data-drawn] .annotation-text").count() > 1
