"""The main job as a person does it: from the first sign-in to a stopped engine, with everything real.

``manage.py up`` runs beside the tests with a home of its own, a host is reached through a real sshd, a real
vLLM (CPU build) serves a small model, and Chromium is the person. It is one test, because each stage stands
on the one before, and a start of the engine takes a minute or more; the stages are the functions below.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from kvadmin.env import BASE_DIR
from kvadmin.up import proc
from tests.e2e.pages import Watched, check_page
from tests.engines.life.conftest import free_port
from tests.support import real_vllm
from tests.support.sshd import Sshd
from tests.support.up import Up, running

pytestmark = [pytest.mark.browser, pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(3600)]

PASSWORD = "staple battery horse 12"
SECRET = "journey-secret-value"
ENGINE, PROFILE, SERVED = "tiny-v1", "tiny-cpu-v1", "tiny"
#: of an engine, on a busy machine with two cores
START_MS = 1_200_000


@dataclass
class Journey:
    """What the stages share: the running kvadmin, the browser's page, and where the engine will be."""

    up: Up
    page: Page
    person: Path
    model: Path
    vllm: Path
    port: int = field(default_factory=free_port)
    engine_path: str = ""

    def processes(self) -> dict[int, str]:
        """Every process of an engine that this kvadmin started: its pid and the marker of its start."""
        found: dict[int, str] = {}
        for pid in proc.every_pid():
            environment = proc.environ(pid)
            if environment.get("HOME") == str(self.person) and environment.get("KVADMIN_START"):
                found[pid] = environment["KVADMIN_START"]
        return {pid: marker for pid, marker in found.items() if proc.identity(pid)}

    def leaders(self) -> list[int]:
        """Pids of vLLM's leading processes: those that were given the command."""
        return [pid for pid in self.processes() if "serve" in arguments(pid) and SERVED in arguments(pid)]

    def api_key(self) -> str:
        (leader,) = self.leaders()
        return proc.environ(leader)["VLLM_API_KEY"]

    def open(self, path: str) -> Page:
        self.page.goto(path)
        return self.page

    def open_engine(self) -> Page:
        return self.open(self.engine_path)

    @property
    def state(self) -> Locator:
        """The badge of the engine's page, which renews itself."""
        return self.page.locator("[data-live] .badge").first

    def kill_worker(self) -> None:
        """kill -9, and wait until the supervisor has another one at work."""
        before = self.up.status()["worker"].pid
        assert before
        os.kill(before, signal.SIGKILL)
        self.up.wait(lambda: self.up.status()["worker"].pid not in {before, None}, 120)
        self.up.wait(lambda: self.up.status()["worker"].state == "running", 120)
        assert not proc.identity(before)


def arguments(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


@pytest.fixture
def journey(browser: Browser, tmp_path: Path) -> Iterator[Journey]:
    vllm = real_vllm.executable()
    model = tmp_path / "tiny"
    script = BASE_DIR / "kvadmin" / "demo" / "tiny_model.py"
    subprocess.run([str(vllm.parent / "python"), str(script), str(model)], check=True, timeout=600)
    person = tmp_path / "person"
    person.mkdir()
    with running(tmp_path / "home", HOME=str(person)) as up:
        up.start()
        up.wait_ready()
        context = browser.new_context(
            base_url=up.console_url, viewport={"width": 1440, "height": 900}, accept_downloads=True
        )
        context.set_default_timeout(60_000)
        page = context.new_page()
        watched = Watched(page)
        one = Journey(up, page, person, model, vllm)
        try:
            yield one
        finally:
            context.close()
            for pid in one.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        watched.assert_quiet()


def test_from_the_first_sign_in_to_a_stopped_engine(journey, sshd):
    sign_in_for_the_first_time(journey)
    add_a_host_over_ssh(journey, sshd)
    add_this_machine(journey)
    describe_how_the_model_starts(journey)
    create_and_start_an_engine(journey)
    talk_to_it_and_see_its_cache(journey)
    look_at_the_pages(journey)
    live_through_the_end_of_a_worker(journey)
    live_through_a_restart_of_kvadmin(journey)
    lose_the_leader_alone(journey)
    restart_while_the_worker_dies(journey)
    read_the_log(journey)
    stop_it(journey)


def sign_in_for_the_first_time(journey: Journey) -> None:
    page = journey.open("/")
    page.get_by_label("User name or email").fill("admin")
    page.get_by_label("Password").fill(journey.up.password())
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Set your own password")).to_be_visible()
    page.get_by_label("Present password").fill(journey.up.password())
    page.get_by_label("New password", exact=True).fill(PASSWORD)
    page.get_by_label("New password again").fill(PASSWORD)
    page.get_by_role("button", name="Set password").click()
    page.wait_for_url(lambda url: "password" not in url)
    journey.open("/")
    expect(page.get_by_role("heading", name="No engine yet")).to_be_visible()
    check_page(page, "journey-empty-fleet")


def add_a_host_over_ssh(journey: Journey, sshd: Sshd) -> None:
    page = journey.page
    page.get_by_role("link", name="Add a host").click()
    page.get_by_label("Name", exact=True).fill("gpu-a")
    page.get_by_label("Address", exact=True).fill("127.0.0.1")
    page.get_by_label("SSH port").fill(str(sshd.port))
    page.get_by_label("User", exact=True).fill(sshd.users.names["bash"])
    page.get_by_label("A new key made here").check()
    page.get_by_role("button", name="Add host").click()
    line = page.locator("#public-line").inner_text()
    with (sshd.users.folder / "authorized_keys").open("a") as authorized:
        authorized.write(line + "\n")
    # first contact is made by itself, and the page shows its outcome without being asked
    expect(page.get_by_role("heading", name="Confirm the host key")).to_be_visible(timeout=120_000)
    shown = page.locator("p.fingerprint").inner_text()
    assert fingerprint(sshd.folder / "host_key.pub") in shown
    page.get_by_role("button", name="The fingerprints are equal: confirm").click()
    expect(page.locator("dl.facts").first).to_contain_text(os_name(), timeout=120_000)
    expect(page.locator(".badge", has_text="Online").first).to_be_visible()


def fingerprint(public: Path) -> str:
    digest = hashlib.sha256(base64.b64decode(public.read_text().split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def os_name() -> str:
    release = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line
    )
    return release["NAME"].strip('"')


def add_this_machine(journey: Journey) -> None:
    page = journey.open("/hosts/add/")
    page.get_by_role("button", name="Add this machine").click()
    expect(page.locator("dl.facts").first).to_contain_text(os_name(), timeout=180_000)
    page.get_by_role("link", name="Provision vLLM").click()
    page.get_by_label("Folder of the environment").fill(str(journey.vllm.parent.parent))
    page.get_by_role("button", name="Register").click()
    journey_host = page.locator("section", has=page.get_by_role("heading", name="vLLM environments"))
    page.wait_for_url(re.compile(r"/(hosts/\d+|operations/[0-9a-f-]+)/$"))
    if "/operations/" in page.url:
        expect(page.locator("[data-live] .badge").first).to_have_text("Done", timeout=180_000)
        journey.open("/hosts/")
        page.get_by_role("link", name=socket.gethostname().split(".")[0], exact=True).click()
    expect(journey_host).to_contain_text(str(journey.vllm.parent.parent), timeout=180_000)


def describe_how_the_model_starts(journey: Journey) -> None:
    page = journey.open("/profiles/add/")
    page.get_by_label("Name", exact=True).fill(PROFILE)
    page.get_by_label("Model", exact=True).fill(str(journey.model))
    page.get_by_label("Served names").fill(SERVED)
    for key, value in [("max_model_len", "2048"), ("max_num_seqs", "16"), ("enforce_eager", "on")]:
        control = page.locator(f"#in-{key}")
        group = page.locator("details.group", has=control)
        if group.get_attribute("open") is None:
            group.locator("summary").click()
        if key == "enforce_eager":
            control.select_option(value)
        else:
            control.fill(value)
    for name, value, kind in [
        ("VLLM_CPU_KVCACHE_SPACE", "1", "plain"),
        ("VLLM_NO_USAGE_STATS", "1", "plain"),
        ("HF_HUB_OFFLINE", "1", "plain"),
        ("HF_TOKEN", SECRET, "secret"),
    ]:
        page.get_by_role("button", name="Add a variable").click()
        row = page.locator("[data-variable]").last
        row.get_by_label("Variable").fill(name)
        row.get_by_label("Kind").select_option(kind)
        row.get_by_label("Value").fill(value)
    page.locator("#in-extra_arguments").fill("--num-gpu-blocks-override 96")
    command = page.locator("#command")
    for part in ("--max-model-len 2048", "--enforce-eager", "--num-gpu-blocks-override 96", "HF_TOKEN="):
        expect(command).to_contain_text(part)
    assert SECRET not in command.inner_text()
    page.get_by_role("button", name="Save profile").click()
    expect(page.get_by_text("Revision 1 is saved.")).to_be_visible()
    assert SECRET not in page.content()


def create_and_start_an_engine(journey: Journey) -> None:
    page = journey.open("/")
    page.get_by_role("link", name="New engine").click()
    check_page(page, "journey-engine-add")
    page.get_by_label("Name", exact=True).fill(ENGINE)
    choose(page.get_by_label("Profile", exact=True), PROFILE)
    here = socket.gethostname().split(".")[0]
    choose(page.get_by_label("Host", exact=True), here)
    choose(page.get_by_label("vLLM"), re.compile(rf"^\s*{here} .*{journey.vllm.parent.parent}\s*$"))
    page.get_by_label("Port").fill(str(journey.port))
    page.get_by_role("button", name="Create and start").click()
    page.wait_for_url(re.compile(r"/engines/\d+/$"))
    journey.engine_path = "/" + page.url.split("/", 3)[3]
    expect(page.locator("ol.steps li.running")).to_be_visible()
    expect(page.locator("ol.steps li.done").first).to_be_visible(timeout=120_000)
    expect(journey.state).to_contain_text("Loading", timeout=300_000)
    check_page(page, "journey-engine-loading")
    expect(journey.state).to_have_text("Ready", timeout=START_MS)
    assert len(journey.leaders()) == 1
    everything = [" ".join(arguments(pid)) for pid in proc.every_pid()]
    assert not any(SECRET in line or journey.api_key() in line for line in everything)


def choose(select: Locator, text: str | re.Pattern[str]) -> None:
    value = select.locator("option", has_text=text).first.get_attribute("value")
    select.select_option(value)


def talk_to_it_and_see_its_cache(journey: Journey) -> None:
    url = f"http://127.0.0.1:{journey.port}/v1/chat/completions"
    key = {"Authorization": f"Bearer {journey.api_key()}"}
    body = {"model": SERVED, "messages": [{"role": "user", "content": "the quick brown fox"}]}
    assert httpx.post(url, json=body, timeout=120).status_code == 401

    def ask(number: int) -> dict:
        wanted = {**body, "max_tokens": 700, "ignore_eos": True, "seed": number}
        answer = httpx.post(url, json=wanted, headers=key, timeout=600)
        answer.raise_for_status()
        return answer.json()

    page = journey.open("/")
    card = page.locator("article.engine")
    with ThreadPoolExecutor(8) as people:
        answers = [people.submit(ask, number) for number in range(16)]
        # the card renews itself: its figures arrive without a reload
        usage = card.locator("div.row b").first
        expect(usage).to_have_text(re.compile(r"^[1-9][\d.]*%$"), timeout=120_000)
        expect(card.locator("svg path, svg polyline").first).to_be_attached(timeout=120_000)
        for answer in answers:
            assert answer.result()["usage"]["completion_tokens"] == 700
    journey.open_engine()
    chart = page.locator('.chart[data-chart-url*="kv_usage"]')
    expect(chart).to_have_attribute("data-drawn", re.compile(r"\d+"))
    expect(chart.locator(".scatterlayer .trace path.js-line").first).to_be_attached(timeout=120_000)
    data = page.request.get(chart.get_attribute("data-chart-url") + "?range=15m").json()
    values = [value for value in data["data"][0]["y"] if value is not None]
    assert len(values) >= 2
    assert 0 < max(values) <= 1


def look_at_the_pages(journey: Journey) -> None:
    page = journey.open_engine()
    for name, path in [
        ("fleet", "/"),
        ("fleet-by-host", "/?view=host"),
        ("engines", "/engines/"),
        ("engine", journey.engine_path),
        ("engine-log", journey.engine_path + "log/"),
        ("engine-operations", journey.engine_path + "operations"),
        ("engine-starts", journey.engine_path + "starts"),
        ("engine-edit", journey.engine_path + "edit"),
        ("operations", "/operations/"),
    ]:
        journey.open(path)
        if name == "engine":
            for chart in page.locator(".chart").all():
                chart.scroll_into_view_if_needed()
                expect(chart).to_have_attribute("data-drawn", re.compile(r"\d+"))
            page.evaluate("scrollTo(0, 0)")
        check_page(page, f"journey-{name}")
    page.locator("table.list a", has_text=ENGINE).first.click()
    expect(page.locator("ol.steps li.done").first).to_be_visible()
    check_page(page, "journey-operation")

    # a question stays on the screen while the part of the page that it is in renews itself
    journey.open_engine()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.wait_for_timeout(6000)
    expect(page.get_by_role("dialog")).to_be_visible()
    check_page(page, "journey-engine-question")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def live_through_the_end_of_a_worker(journey: Journey) -> None:
    before = journey.processes()
    journey.kill_worker()
    assert journey.processes().keys() >= set(journey.leaders())
    assert set(journey.processes().values()) == set(before.values())
    journey.open_engine()
    expect(journey.state).to_have_text("Ready")


def live_through_a_restart_of_kvadmin(journey: Journey) -> None:
    leaders = journey.leaders()
    journey.page.goto("about:blank")
    assert journey.up.process
    journey.up.process.send_signal(signal.SIGTERM)
    assert journey.up.process.wait(120) == 0
    assert journey.up.processes() == []
    assert journey.leaders() == leaders
    journey.up.start()
    journey.up.wait_ready()
    page = journey.open_engine()
    expect(journey.state).to_have_text("Ready", timeout=120_000)
    assert journey.leaders() == leaders
    page.get_by_role("link", name="Starts", exact=True).click()
    changes = page.locator("table").last
    expect(changes).to_contain_text("Loading")
    expect(changes.locator("tbody tr")).to_have_count(3)
    page.get_by_role("link", name="Operations", exact=True).last.click()
    expect(page.locator("table.list tbody tr")).to_have_count(1)


def lose_the_leader_alone(journey: Journey) -> None:
    (leader,) = journey.leaders()
    others = set(journey.processes()) - {leader}
    assert others
    journey.open_engine()
    os.kill(leader, signal.SIGKILL)
    expect(journey.state).to_have_text("Failed", timeout=180_000)
    expect(journey.page.locator(".find.bad").first).to_be_visible()
    expect(journey.page.get_by_label("Last lines of the log")).to_be_visible()
    journey.up.wait(lambda: not journey.processes(), 120)
    check_page(journey.page, "journey-engine-failed")


def restart_while_the_worker_dies(journey: Journey) -> None:
    page = journey.open_engine()
    page.get_by_role("button", name="Restart", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    expect(journey.state).to_contain_text("Loading", timeout=300_000)
    journey.kill_worker()
    expect(journey.state).to_have_text("Ready", timeout=START_MS)
    assert len(journey.leaders()) == 1
    assert len(set(journey.processes().values())) == 1


def read_the_log(journey: Journey) -> None:
    page = journey.open_engine()
    page.get_by_role("link", name="Log", exact=True).click()
    text = page.locator("[data-log-text]")
    expect(text).to_contain_text("Application startup complete")
    key = {"Authorization": f"Bearer {journey.api_key()}"}
    httpx.get(f"http://127.0.0.1:{journey.port}/v1/models?from=journey", headers=key, timeout=60)
    expect(text).to_contain_text("from=journey", timeout=60_000)
    page.get_by_label("Search the log").fill("non-default args")
    page.get_by_role("button", name="Search", exact=True).click()
    hit = page.locator("[data-log-hits] button").first
    expect(hit).to_contain_text("non-default args")
    hit.click()
    expect(text).to_contain_text("non-default args")
    check_page(page, "journey-engine-log-search")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    whole = Path(download.value.path()).read_text()
    assert "from=journey" in whole
    assert SECRET not in whole
    assert journey.api_key() not in whole


def stop_it(journey: Journey) -> None:
    page = journey.open_engine()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(journey.state).to_have_text("Stopped", timeout=180_000)
    assert journey.processes() == {}
    journey.open("/audit/")
    for verb in ("stop", "restart", "start"):
        expect(page.get_by_role("cell", name=f"engine.{verb}", exact=True).first).to_be_visible()
