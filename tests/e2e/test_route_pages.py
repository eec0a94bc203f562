"""Teams, keys, routes and models in a real browser: issued, copied, rotated, and nothing sticks out."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from engines.choices import EngineState
from kvadmin.policies import Role, TeamRole
from routes import keyformat
from routes.models import Key, Route
from tests.e2e.pages import check_page
from tests.routes.test_playbook import ONE
from tests.routes.usage.support import NOON, clear, store, usage
from tests.support.factories import EngineFactory, HostFactory
from tests.support.people import make_person
from tests.support.route_factories import (
    BusinessFactory,
    KeyFactory,
    OutsideTargetFactory,
    RouteFactory,
    TargetFactory,
    TeamFactory,
)

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def world(transactional_db):
    """A team with an owner, businesses with keys in several states, and routes that serve and do not."""
    team = TeamFactory(name="search")
    owner = make_person("oona", Role.MEMBER)
    team.memberships.create(user=owner, role=TeamRole.OWNER)
    team.memberships.create(user=make_person("mika", Role.MEMBER), role=TeamRole.MEMBER)
    shop = BusinessFactory(team=team, name="shop assistant", description="Answers customers in the shop.")
    BusinessFactory(team=team, name="internal wiki")
    now = timezone.now()
    old = KeyFactory(
        business=shop,
        name="production",
        overlap_ends_at=now + timedelta(days=5),
        last_used_at=now - timedelta(days=2),
        last_used_ip="10.1.2.3",
        models=["qwen3-8b-v1"],
        concurrent=16,
        monthly_tokens=50_000_000,
        addresses=["10.1.0.0/16", "2001:db8::/32"],
    )
    KeyFactory(business=shop, name="production", predecessor=old, last_used_at=now - timedelta(minutes=4))
    KeyFactory(business=shop, name="staging", expires_at=now + timedelta(days=6), models=["gone-8b-v1"])
    KeyFactory(business=shop, name="laptop", disabled_at=now)
    host = HostFactory(name="h200-a")
    route = RouteFactory(
        name="qwen3-8b-v1",
        aliases=["qwen3-8b", "default"],
        description="Quick answers, tools, 32k of context.",
        max_tokens=32768,
        price={"currency": "EUR", "prompt": 0.2, "cached": 0.05, "completion": 0.6},
    )
    for name, state, length in (("qwen-a", EngineState.READY, 32768), ("qwen-b", EngineState.STOPPED, 16384)):
        TargetFactory(
            route=route,
            engine=EngineFactory(
                name=name, host=host, observed=state, max_model_len=length, served_names=["Qwen/Qwen3-8B"]
            ),
        )
    OutsideTargetFactory(route=route, base_url="http://localhost:8000", api_key="sk-outside-1", weight=2)
    RouteFactory(name="Assistant", enabled=False)
    clear()
    store(
        *(
            usage(
                (now - timedelta(minutes=37 * n) - NOON).total_seconds(),
                key_id=old.pk,
                business_id=shop.pk,
                team_id=team.pk,
                route_id=route.pk,
                model=route.name,
                prompt_tokens=900 + 31 * n,
                cached_tokens=300 + 17 * n,
                completion_tokens=40 + n % 7,
                total_s=0.4 + (n % 9) / 3,
                first_byte_s=0.05 + (n % 5) / 20,
                error_layer="" if n % 11 else "gateway",
                error_code="" if n % 11 else "rate_limit_exceeded",
            )
            for n in range(40)
        )
    )
    yield {"owner": owner, "team": team, "shop": shop, "key": old, "route": route}
    clear()


@pytest.fixture
def as_owner(sign_in_as, world):
    return sign_in_as(world["owner"])


@pytest.fixture
def as_operator(sign_in_as, world):
    return sign_in_as(make_person("olga", Role.OPERATOR))


@pytest.mark.parametrize(
    ("path", "heading"),
    [
        ("/teams/", "Teams"),
        ("/teams/{team.pk}/", "search"),
        ("/teams/{team.pk}/usage/", "Usage of search"),
        ("/teams/{team.pk}/businesses/add/", "New business"),
        ("/keys/", "Keys"),
        ("/keys/add/", "New key"),
        ("/keys/import/", "Take over a secret"),
        ("/keys/{key.pk}/", "production"),
        ("/keys/{key.pk}/edit/", "Change the key"),
        ("/models/", "Models"),
        ("/models/{route.pk}/", "qwen3-8b-v1"),
    ],
)
def test_page_of_an_owner(as_owner, world, path, heading):
    as_owner.goto(path.format(**world))
    expect(as_owner.get_by_role("heading", name=heading, level=1)).to_be_visible()
    for number in range(as_owner.locator(".chart").count()):
        chart = as_owner.locator(".chart").nth(number)
        chart.scroll_into_view_if_needed()
        expect(chart).to_have_attribute("data-drawn", "1")
    check_page(as_owner, f"owner-{path.split('/')[1]}-{heading.lower().replace(' ', '-')}")


@pytest.mark.parametrize(
    ("path", "heading"),
    [
        ("/routes/", "Routes"),
        ("/routes/{route.pk}/", "qwen3-8b-v1"),
        ("/routes/{route.pk}/edit/", "Edit route"),
        ("/routes/add/", "New route"),
        ("/routes/import/", "Import routes"),
    ],
)
def test_page_of_an_operator(as_operator, world, path, heading):
    as_operator.goto(path.format(**world))
    expect(as_operator.get_by_role("heading", name=heading, level=1)).to_be_visible()
    check_page(as_operator, f"operator-{heading.lower().replace(' ', '-')}")


def test_empty_pages(sign_in_as, transactional_db):
    page = sign_in_as(make_person("otto", Role.MEMBER))
    for path in ("/teams/", "/keys/", "/models/"):
        page.goto(path)
        expect(page.locator(".empty")).to_be_visible()
    check_page(page, "nobody-models")


def test_an_owner_issues_a_key_and_copies_its_settings(as_owner, world):
    page: Page = as_owner
    page.watched.expected_statuses.add(400)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"/teams/{world['team'].pk}/")
    page.get_by_role("link", name="New key for shop assistant").click()
    expect(page.get_by_label("Business", exact=True)).to_have_value(str(world["shop"].pk))
    page.get_by_label("Name").fill("nightly job")
    expect(page.get_by_label("qwen3-8b-v1")).to_be_hidden()
    page.get_by_label("All models").uncheck()
    page.get_by_label("qwen3-8b-v1").check()
    page.get_by_label("Allowed addresses").fill("10.1.2.3/8")
    page.get_by_role("button", name="Issue the key").click()
    expect(page.get_by_text("10.0.0.0/8 is meant?")).to_be_visible()
    expect(page.get_by_label("qwen3-8b-v1")).to_be_checked()
    page.get_by_label("Allowed addresses").fill("10.0.0.0/8")
    page.get_by_role("button", name="Issue the key").click()
    expect(page.get_by_role("heading", name="The new key", level=1)).to_be_visible()
    secret = page.locator("#secret").text_content()
    key = Key.objects.get(name="nightly job")
    assert keyformat.public_id(secret) == key.public_id
    page.get_by_role("button", name="Copy the key").click()
    assert page.evaluate("navigator.clipboard.readText()") == secret
    page.get_by_text("Claude Code").click()
    page.get_by_role("button", name="Copy for Claude Code").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert f"export ANTHROPIC_AUTH_TOKEN={secret}\n" in copied
    check_page(page, "owner-secret")
    page.get_by_role("link", name="I have copied it").click()
    expect(page.get_by_role("heading", name="nightly job", level=1)).to_be_visible()
    assert secret not in page.content()


def test_an_owner_rotates_and_revokes(as_owner, world):
    page: Page = as_owner
    key = KeyFactory(business=world["shop"], name="to rotate")
    page.goto(f"/keys/{key.pk}/")
    page.get_by_role("button", name="Rotate").click()
    page.get_by_label("The old key goes on working for").select_option("24")
    check_page(page, "owner-rotate-dialog")
    page.get_by_role("button", name="Make the new key").click()
    expect(page.get_by_text("works until")).to_be_visible()
    page.goto(f"/keys/{key.pk}/")
    expect(page.get_by_text("Nobody has used the new one yet")).to_be_visible()
    page.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("every gateway refuses it within a second")).to_be_visible()


def test_an_operator_makes_a_route_with_two_targets(as_operator, world):
    page: Page = as_operator
    page.watched.expected_statuses.add(400)
    page.goto("/routes/add/")
    page.get_by_label("Model name", exact=True).fill("qwen3-8b-v1")
    page.get_by_label("Engine", exact=True).select_option(index=1)
    page.get_by_role("button", name="Add a target").click()
    second = page.get_by_role("group", name="Target 2")
    second.get_by_label("Base URL").fill("vllm-b:8000")
    page.get_by_role("button", name="Save route").click()
    expect(page.get_by_text("Another route has this name or alias")).to_be_visible()
    expect(page.get_by_text("has to begin with http://")).to_be_visible()
    check_page(page, "operator-route-refused")
    page.get_by_label("Model name", exact=True).fill("qwen3-32b-awq")
    page.get_by_role("group", name="Target 2").get_by_label("Base URL").fill("http://vllm-b:8000/v1")
    page.get_by_role("button", name="Save route").click()
    expect(page.get_by_role("heading", name="qwen3-32b-awq", level=1)).to_be_visible()
    assert Route.objects.get(name="qwen3-32b-awq").targets.count() == 2


def test_an_operator_imports_what_was_written_by_hand(as_operator, world):
    page: Page = as_operator
    page.goto("/routes/import/")
    page.get_by_label("Routes", exact=True).fill(json.dumps(ONE | {"model_name": "qwen3-32b-awq"}))
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("1 route made")).to_be_visible()
    expect(page.get_by_role("link", name="qwen3-32b-awq")).to_be_visible()
