"""The plan follows the form, unfolds its arithmetic, and answers the other way round with a click."""

from __future__ import annotations

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from engines.models import EngineStart
from kvadmin.policies import Role
from tests.e2e.pages import check_page
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory, RevisionFactory
from tests.support.people import make_person

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

VALUES = {
    "max_model_len": 32768,
    "gpu_memory_utilization": 0.9,
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 64,
    "block_size": 16,
}


@pytest.fixture
def page(sign_in_as, transactional_db):
    return sign_in_as(make_person("olga", Role.OPERATOR))


@pytest.fixture
def host(transactional_db):
    gpu = {
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": "GPU-0",
        "memory_total_mib": 143771,
        "memory_used_mib": 0,
        "memory_free_mib": 143156,
    }
    host = HostFactory(name="h200-1", facts={"gpus": [gpu]}, facts_at=timezone.now())
    EnvironmentFactory(host=host, version="0.25.1")
    return host


def test_the_plan_follows_the_form(page, host):
    revision = RevisionFactory(values=VALUES)
    page.goto(f"/profiles/{revision.profile_id}/edit/")
    planned = page.locator("#planned")
    expect(planned).to_contain_text("794,016 tokens")
    planned.get_by_text("Pool", exact=True).click()
    expect(planned.get_by_text("147,456 bytes per token.")).to_be_visible()
    page.get_by_label("Share of the card").fill("0.14")
    expect(planned).to_contain_text("are the longest that starts")
    page.get_by_label("Share of the card").fill("0.85")
    expect(planned).to_contain_text("Dashed: as saved.")
    # what was unfolded stays so
    expect(planned.get_by_text("147,456 bytes per token.")).to_be_visible()
    page.get_by_text("Ask the planner").click()
    page.get_by_label("Requests at once", exact=True).fill("40")
    page.get_by_label("Tokens of each").fill("16384")
    planned.get_by_role("button", name="Set these").first.click()
    expect(page.get_by_label("Cache type")).to_have_value("auto")
    planned.get_by_text("Memory of the fullest card").click()
    check_page(page, "planner")


def test_expected_stands_beside_found(page, host):
    engine = EngineFactory(host=host, revision=RevisionFactory(values=VALUES))
    facts = {"kv_gib": 109.04, "kv_tokens": 794016, "max_concurrency": 24.23}
    start = EngineStart.objects.create(
        engine=engine, number=1, revision=engine.revision, vllm_version="0.25.1", facts=facts
    )
    engine.current_start = start
    engine.save()
    page.goto(f"/engines/{engine.pk}/starts")
    row = page.get_by_role("row").filter(has_text="794,016")
    expect(row).to_contain_text("0.00%")
    check_page(page)
    page.goto("/engines/starts")
    expect(page.get_by_role("row").filter(has_text=engine.name)).to_contain_text("0.00%")
    check_page(page)
