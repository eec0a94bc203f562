"""A team's own way to a model, with everything real: a key issued in the browser, an unchanged OpenAI client.

The owner has no role on engines. Between the client and a real vLLM (CPU build) stands a gateway's process;
what it counted is on the key's page, and a revoked key ends the client's next request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from kvadmin.models import Team, User
from kvadmin.policies import Role
from routes.models import Business, Key
from tests.e2e.pages import check_page
from tests.routes.usage.support import clear
from tests.support import real_engine as engine
from tests.support.gateway_process import GatewayProcess, wait_for
from tests.support.people import make_person
from tests.support.route_factories import OutsideTargetFactory, RouteFactory

pytestmark = [pytest.mark.browser, pytest.mark.vllm, pytest.mark.timeout(1800)]

MODEL = "qwen3-8b-v1"
PASSWORD = "correct horse battery"
QUESTION: Any = [{"role": "user", "content": "Wann kommt mein Paket? 包裹 📦"}]


@pytest.fixture
def gateway(
    transactional_db: None, real_engine: str, tmp_path: Path, settings: Any
) -> Iterator[GatewayProcess]:
    route = RouteFactory(name=MODEL)
    OutsideTargetFactory(route=route, base_url=real_engine, api_key=engine.KEY, model="second")
    running = GatewayProcess(tmp_path)
    settings.KVADMIN_GATEWAY_URL = running.url
    running.start()
    yield running
    running.stop()
    clear()


@pytest.fixture
def owner(team: Team, team_owner: User) -> User:
    Business.objects.create(team=team, name="shop assistant")
    assert team_owner.role == Role.MEMBER
    make_person("mika", Role.MEMBER)
    return team_owner


def test_a_business_gets_a_key_and_its_client_talks_to_an_engine(page, gateway, owner):
    sign_in(page, owner)
    base_url, secret = issue_a_key(page)
    with openai.OpenAI(base_url=base_url, api_key=secret, max_retries=0) as client:
        tokens = talk(client)
        see_what_it_used(page, tokens)
        revoke(page)
        # the gateways hear of it in well under a second
        refused = wait_for(lambda: refusal(client), 2)
    assert refused.code == "key_revoked"
    assert refused.request_id
    see_the_refusal(page)


def sign_in(page: Page, owner: User) -> None:
    page.goto("/keys/")
    page.get_by_label("User name or email").fill(owner.username)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Keys", level=1)).to_be_visible()
    assert page.request.get(reverse("engines:engine_list")).status == 403


def issue_a_key(page: Page) -> tuple[str, str]:
    """The base URL and the secret, as the page shows them."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("link", name="New key").first.click()
    page.get_by_label("Name").fill("assistant in production")
    page.get_by_label("All models").uncheck()
    page.get_by_label(MODEL).check()
    page.get_by_role("button", name="Issue the key").click()
    expect(page.get_by_role("heading", name="The new key", level=1)).to_be_visible()
    page.get_by_role("button", name="Copy the key").click()
    secret = page.evaluate("navigator.clipboard.readText()")
    base_url = page.locator("dl.facts dd").first.inner_text()
    check_page(page, "team-secret")
    page.get_by_role("link", name="I have copied it").click()
    expect(page.get_by_role("heading", name="assistant in production", level=1)).to_be_visible()
    expect(page.get_by_text("No requests in this range")).to_be_visible()
    assert secret not in page.content()
    assert all(secret.encode() not in bytes(key.digest) for key in Key.objects.all())
    return base_url, secret


def talk(client: openai.OpenAI) -> tuple[int, int]:
    """A whole answer and a stream; prompt and answer tokens of both, as the client was told."""
    assert [model.id for model in client.models.list()] == [MODEL]
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=12)
    assert answer.model == MODEL
    assert answer.usage
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=QUESTION,
            max_tokens=20,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert {chunk.model for chunk in chunks} == {MODEL}
    streamed = chunks[-1].usage
    assert streamed
    return (
        answer.usage.prompt_tokens + streamed.prompt_tokens,
        answer.usage.completion_tokens + streamed.completion_tokens,
    )


def see_what_it_used(page: Page, tokens: tuple[int, int]) -> None:
    kpis = page.locator("#usage .kpi")

    def counted() -> bool:
        page.reload()
        return kpis.count() == 4 and kpis.nth(3).locator("dd").inner_text().startswith(str(tokens[1]))

    wait_for(counted)
    # the list of models is a request too, without tokens
    expect(kpis.nth(0)).to_contain_text(re.compile(r"3\s*1 streamed"))
    expect(kpis.nth(1)).to_contain_text("caller 0, gateway 0, engine 0")
    expect(kpis.nth(2)).to_contain_text(str(tokens[0]))
    expect(kpis.nth(3)).to_contain_text("all counted by engines")
    expect(page.get_by_text("from 127.0.0.1")).to_be_visible()
    expect(page.get_by_text("last used never")).to_have_count(0)
    expect(page.get_by_role("rowheader", name=MODEL)).to_be_visible()
    for chart in page.locator(".chart").all():
        chart.scroll_into_view_if_needed()
        expect(chart).to_have_attribute("data-drawn", re.compile(r"\d+"))
    page.evaluate("scrollTo(0, 0)")
    check_page(page, "team-key-used")


def revoke(page: Page) -> None:
    page.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("every gateway refuses it within a second")).to_be_visible()


def refusal(client: openai.OpenAI) -> openai.AuthenticationError | None:
    try:
        client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=1)
    except openai.AuthenticationError as error:
        return error
    return None


def see_the_refusal(page: Page) -> None:
    def shown() -> bool:
        page.reload()
        return page.get_by_role("rowheader", name="key_revoked").count() == 1

    wait_for(shown)
    expect(page.get_by_role("heading", name="assistant in production", level=1)).to_be_visible()
    expect(page.get_by_role("button", name="Revoke")).to_have_count(0)
