"""Paste a command, see what the installed vLLM makes of it, mend it with clicks, save."""

from __future__ import annotations

import re

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from engines.models import Host, Profile
from kvadmin.policies import Role
from tests.e2e.pages import check_page
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory, RevisionFactory
from tests.support.people import make_person

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

#: as a web page gives the playbook's command: backslash-blank for line breaks, curly quotes, long dashes
PASTED = (
    "vllm serve Qwen/Qwen3-8B-Instruct \\ —host 0.0.0.0 \\ —port 8000 \\ --tensor-parallel-size 4 "
    "\\ --max-model-len 32768 \\ --gpu-memory-utilization 0.97 \\ --enable-prefix-caching "
    "\\ --enable-chunked-prefill \\ --max-num-batched-tokens 8192 \\ --max-num-seqs 64 "
    "\\ --block-size 16 \\ --swap-space 8 \\ --served-model-name “qwen3-8b” \\ --disable-log-requests "
    "\\ --guided-decoding-backend xgrammar \\ --max-num-queued-req 9"
)


@pytest.fixture
def page(sign_in_as, transactional_db):
    return sign_in_as(make_person("olga", Role.OPERATOR))


@pytest.fixture
def hosts(transactional_db):
    facts = {
        "gpus": [
            {"index": index, "name": "NVIDIA H200", "uuid": f"GPU-{index}", "memory_total_mib": 143771}
            for index in range(2)
        ]
    }
    for name, version in (("h200-1", "0.32.0"), ("h200-2", "0.33.0")):
        host = HostFactory(name=name, facts=facts, facts_at=timezone.now())
        EnvironmentFactory(host=host, version=version)


def test_a_pasted_command_is_mended_with_clicks_and_saved(page, hosts):
    page.goto("/profiles/import/")
    page.get_by_label("Command, container file or exported JSON").fill(PASTED)
    page.get_by_role("button", name="Read it").click()
    read = page.locator(".find.info").first
    expect(read).to_contain_text("Backslashes followed by a blank were read as line breaks")
    expect(read).to_contain_text("Curly quotes were read as straight ones")
    expect(read).to_contain_text("--host 0.0.0.0 --port 8000: address and port are settled")
    expect(read).to_contain_text("There is no Qwen/Qwen3-8B-Instruct")
    findings = page.locator("#findings")
    expect(findings).to_contain_text("vLLM 0.32.0 on h200-1, vLLM 0.33.0 on h200-2")
    expect(findings).to_contain_text("This takes 4 GPUs, and the host has 2.")
    expect(findings).to_contain_text("vLLM 0.32.0, 0.33.0 has no --swap-space")
    expect(findings).to_contain_text("--guided-decoding-backend: it is now “backend”")
    expect(page.locator("#command")).not_to_contain_text("swap-space")
    page.locator("#gets-0 > summary").click()
    expect(page.locator("#gets-0")).to_contain_text("left out")
    check_page(page, "profile-findings")

    page.get_by_role("button", name="Tensor parallel 2").click()
    expect(page.get_by_label("Tensor parallel --tensor-parallel-size")).to_have_value("2")
    expect(findings).not_to_contain_text("This takes 4 GPUs")
    expect(page.locator("#gets-0")).to_have_attribute("open", "")
    # what stood there is one click away
    page.get_by_role("button", name="Undo").click()
    expect(findings).to_contain_text("This takes 4 GPUs")
    page.get_by_role("button", name="Tensor parallel 2").click()
    expect(findings).not_to_contain_text("This takes 4 GPUs")

    page.get_by_role("button", name="Set --gpu-memory-utilization to 0.90").click()
    expect(page.locator("#note-gpu_memory_utilization")).to_be_empty()
    page.get_by_role("button", name="Take --swap-space out").first.click()
    expect(findings).not_to_contain_text("--swap-space")
    page.get_by_role("button", name="Take --disable-log-requests out").first.click()
    page.get_by_role("button", name="Write --structured-outputs-config").first.click()
    expect(findings).not_to_contain_text("guided-decoding")
    expect(findings).to_contain_text("Every flag is understood there")
    extra = page.get_by_role("textbox", name="Extra arguments")
    expect(extra).to_have_value(
        """--max-num-queued-req 9 --structured-outputs-config '{"backend": "xgrammar"}'"""
    )
    check_page(page, "profile-mended")
    page.get_by_role("button", name="Save profile").click()
    expect(page).to_have_url(re.compile(r"/profiles/\d+/$"))
    revision = Profile.objects.get().latest
    assert revision.model == "Qwen/Qwen3-8B"
    assert revision.values["tensor_parallel_size"] == 2
    assert not {"swap_space", "disable_log_requests"} & set(revision.values)


def test_the_form_is_checked_against_the_versions_that_are_ticked(page, hosts):
    page.goto("/profiles/add/")
    page.get_by_label("Model", exact=True).fill("m/m")
    page.get_by_role("textbox", name="Extra arguments").fill("--disable-log-requests-x 1")
    findings = page.locator("#findings")
    expect(findings).to_contain_text("vLLM 0.32.0 refuses --disable-log-requests-x")
    expect(findings.get_by_text("Does not start · h200-1")).to_be_visible()
    page.get_by_text("Check against other versions").click()
    page.get_by_label("h200-1 · vLLM 0.32.0").uncheck()
    expect(findings).not_to_contain_text("h200-1")
    page.get_by_label("Another release").select_option("0.6.3.post1")
    expect(findings).to_contain_text("vLLM 0.6.3.post1 on any host")


def test_the_pages_of_flags_and_of_an_upgrade(page, hosts):
    host = Host.objects.get(name="h200-1")
    old = EnvironmentFactory(host=host, version="0.10.2")
    revision = RevisionFactory(
        values={"max_model_len": 4096, "swap_space": 4.0},
        extra_arguments="--guided-decoding-backend xgrammar --rope-theta 10000",
    )
    EngineFactory(name="chat-1", host=host, environment=old, revision=revision)
    page.goto(f"/hosts/{host.pk}/")
    page.get_by_role("link", name="Before an upgrade").click()
    page.get_by_label("vLLM version").select_option("0.33.0")
    page.get_by_role("button", name="Look ahead").click()
    expect(page.get_by_role("heading", name="What vLLM 0.33.0 would change")).to_be_visible()
    expect(page.get_by_text("Does not start")).to_be_visible()
    check_page(page, "host-upgrade")
    page.goto("/profiles/flags/?q=cache")
    expect(page.get_by_role("heading", name="Flags of vLLM 0.33.0")).to_be_visible()
    check_page(page, "flags")
