"""The first engine, in a real browser: what the form offers, and the empty fleet that it appears in."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory, RevisionFactory

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_only_the_vllm_of_the_chosen_host_is_offered(sign_in_as, operator):
    first, second = HostFactory(), HostFactory()
    mine, other = EnvironmentFactory(host=first), EnvironmentFactory(host=second)
    RevisionFactory()
    page = sign_in_as(operator)
    page.goto(f"/engines/add?host={first.pk}&environment={mine.pk}")
    vllm = page.get_by_label("vLLM", exact=True)
    expect(vllm).to_have_value(str(mine.pk))
    offered = vllm.locator("option:not([disabled])")
    expect(offered).to_have_count(2)
    page.get_by_label("Host", exact=True).select_option(str(second.pk))
    expect(vllm).to_have_value("")
    expect(page.get_by_label("Port")).to_have_value("")
    expect(offered).to_have_count(2)
    vllm.select_option(str(other.pk))


def test_the_empty_fleet_shows_the_first_engine_by_itself(sign_in_as, viewer):
    page = sign_in_as(viewer)
    page.goto("/")
    expect(page.get_by_text("No engine yet")).to_be_visible()
    engine = EngineFactory(name="the-first-one")
    expect(page.get_by_role("heading", name=engine.name)).to_be_visible()
    engine.delete()
    expect(page.get_by_text("No engine yet")).to_be_visible()
