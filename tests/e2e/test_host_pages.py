"""Hosts in a real browser: every page in both themes and widths; adding one with mistakes on the way."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from engines.choices import HostState, OperationKind, OperationState
from engines.models import GpuSample, Host, Operation
from engines.ssh import keys
from kvadmin.policies import Role
from tests.e2e.pages import check_page
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory
from tests.support.facts import FACTS
from tests.support.people import make_person

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(300),
]

SERVER = {
    "pid": 4242,
    "ticks": 1000,
    "owner": "ops",
    "argv": ["/opt/vllm/bin/python3", "/opt/vllm/bin/vllm", "serve", "Qwen/Qwen3-32B", "--api-key", "****"],
    "model": "Qwen/Qwen3-32B",
    "served_names": ["Qwen/Qwen3-32B"],
    "address": "0.0.0.0",
    "port": 8001,
    "environment": "/opt/vllm",
    "log_path": "/home/ops/vllm.log",
    "log_readable": True,
    "marker": "",
    "started_before_s": 3600,
    "processes": [],
    "notes": [],
    "answers": {"health": 200, "models": 200, "version": "0.32.0", "served_names": ["qwen3-32b"]},
}


@pytest.fixture
def signed_in(sign_in_as, transactional_db):
    return sign_in_as(make_person("olga", Role.OPERATOR))


@pytest.fixture
def host(transactional_db):
    now = timezone.now()
    host = HostFactory(
        name="h200-a", facts=FACTS, facts_at=now, last_seen_at=now, host_key=keys.generate("h").public
    )
    environment = EnvironmentFactory(host=host, version="0.33.0")
    EngineFactory(host=host, name="qwen3-8b-v1", environment=environment, port=8000)
    Operation.objects.create(
        kind=OperationKind.DISCOVER,
        host=host,
        state=OperationState.SUCCEEDED,
        finished_at=now,
        scratch={"servers": [SERVER], "boot_id": "b", "unreadable": 0, "hidden": False},
    )
    for minutes in range(60):
        GpuSample.objects.create(
            host=host,
            taken_at=now - timedelta(minutes=minutes),
            index=0,
            uuid="GPU-1",
            memory_total_mib=143771,
            memory_used_mib=60000 + 500 * minutes,
        )
    return host


@pytest.mark.parametrize(
    ("path", "heading"),
    [
        ("", "Hosts"),
        ("add/", "Add host"),
        ("{pk}/", "h200-a"),
        ("{pk}/edit/", "Edit host"),
        ("{pk}/provision/", "Provision vLLM"),
        ("{pk}/adopt/4242/", "Adopt a running server"),
    ],
)
def test_page(signed_in, host, path, heading):
    signed_in.goto(f"/hosts/{path.format(pk=host.pk)}")
    expect(signed_in.get_by_role("heading", name=heading, level=1)).to_be_visible()
    if path == "{pk}/":
        signed_in.locator(".chart").scroll_into_view_if_needed()
        expect(signed_in.locator(".chart[data-drawn]")).to_be_visible(timeout=30_000)
    check_page(signed_in, f"host-{heading.lower().replace(' ', '-')}")


def test_a_changed_key_is_confirmed_only_on_purpose(signed_in, transactional_db):
    old, new = keys.generate("h").public, keys.generate("h").public
    host = HostFactory(name="h200-b", host_key=old, offered_key=new, state=HostState.BLOCKED, public_key=old)
    page = signed_in
    page.goto(f"/hosts/{host.pk}/")
    expect(page.get_by_text(keys.fingerprint(old))).to_be_visible()
    expect(page.get_by_text(keys.fingerprint(new))).to_be_visible()
    check_page(page, "host-changed-key")
    page.get_by_role("button", name="Accept the new key").click()
    host.refresh_from_db()
    assert host.host_key == old
    page.get_by_label("I know why the key changed").check()
    page.get_by_role("button", name="Accept the new key").click()
    expect(page.get_by_text("The key is confirmed.")).to_be_visible()
    host.refresh_from_db()
    assert host.host_key == new


def test_a_host_is_added_with_a_generated_key(signed_in):
    page = signed_in
    page.goto("/hosts/add/")
    page.get_by_label("Name", exact=True).fill("h200-c")
    page.get_by_label("Address", exact=True).fill("ops@10.0.3.14")
    page.get_by_label("User", exact=True).fill("ops")
    expect(page.locator("#id_private_key")).to_be_visible()
    page.get_by_label("A new key made here").check()
    expect(page.locator("#id_private_key")).to_be_hidden()
    page.get_by_role("button", name="Add host").click()
    expect(page.get_by_text("Give the user in its own field")).to_be_visible()
    expect(page.get_by_label("A new key made here")).to_be_checked()
    check_page(page, "host-refused")
    page.get_by_label("Address", exact=True).fill("127.0.0.1")
    page.get_by_role("button", name="Add host").click()
    expect(page.get_by_role("heading", name="Let kvadmin in")).to_be_visible()
    host = Host.objects.get(name="h200-c")
    expect(page.locator("#public-line")).to_have_text(host.public_key)
    check_page(page, "host-new")
