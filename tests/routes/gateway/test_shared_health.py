"""What one worker learns of a target holds for all of a gateway: ejection, the one probe, readmission."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvadmin.env import BASE_DIR
from kvadmin.models import Team
from routes.gateway import health as rules
from routes.gateway import healthfile
from routes.gateway.health import FAILURES, FIRST_S, LONGEST_S, PROBED
from routes.gateway.healthfile import HealthFile
from routes.gateway.records import TargetRecord
from routes.models import Business, Route, Target
from tests.routes.usage.support import clear
from tests.support.gateway import Gateway, run, until
from tests.support.gateway_process import GatewayProcess, issue, upstream_thread, wait_for
from tests.support.upstream import Upstream, silent, whole

TARGET = TargetRecord(1, 1, "http://engine", "m")
FAR = 1e9
BOOM = whole({"error": {"message": "boom"}}, 500)


@pytest.fixture
def files(tmp_path) -> Iterator:
    """Openings of one file, as of a gateway's workers."""
    opened: list[HealthFile] = []

    def another() -> HealthFile:
        opened.append(HealthFile(tmp_path / "8081"))
        return opened[-1]

    another.opened = opened
    yield another
    for file in opened:
        file.close()


def test_an_ejection_counts_for_all_at_once(files):
    one, other = files().of(TARGET), files().of(TARGET)
    assert one.failed(100.0, "refused the connection — é" * 20, at_once=True)
    assert not other.may_take(100.0 + FIRST_S / 2)
    assert other.take(100.0 + FIRST_S / 2) is None
    assert (other.pause_s, other.opens_at) == (FIRST_S, 100.0 + FIRST_S)
    assert other.reason.startswith("refused the connection — é")
    assert other.answered()
    assert one.state(100.0) == "closed"
    assert one.reason == ""


def test_failures_in_a_row_are_those_of_all(files):
    one, other = files().of(TARGET), files().of(TARGET)
    for health in [one, other] * (FAILURES // 2):
        assert not health.failed(0.0, "500", at_once=False)
    other.answered()
    assert one.failures == 0
    for health in [one, other] * (FAILURES // 2):
        assert not health.failed(0.0, "500", at_once=False)
    assert one.failed(0.0, "500", at_once=False)
    assert other.state(0.0) == "open"


def test_there_is_one_probe(files):
    one, other = files().of(TARGET), files().of(TARGET)
    one.failed(0.0, "refused", at_once=True)
    now = one.opens_at
    probe = one.take(now)
    assert probe
    assert not other.may_take(now)
    # also for one that looked before it was written down
    other._values[PROBED] = 0.0
    assert other.may_take(now)
    assert other.take(now) is None
    assert one.failed(now, "refused", at_once=True)
    assert (other.pause_s, other.state(now)) == (FIRST_S * 2, "open")
    assert other.take(other.opens_at)
    assert one.take(other.opens_at) is None
    other.answered()
    assert one.take(now) == 0


def test_a_probe_that_tells_nothing_is_anyones(files):
    one, other = files().of(TARGET), files().of(TARGET)
    one.failed(0.0, "refused", at_once=True)
    one.undecided(one.take(one.opens_at))
    assert other.take(other.opens_at)


def test_an_answer_to_another_worker_leaves_no_probe_held(files):
    one, other = files().of(TARGET), files().of(TARGET)
    one.failed(0.0, "refused", at_once=True)
    assert one.take(one.opens_at)
    # what was on its way there when it was ejected
    assert other.answered()
    one.answered()
    other.failed(10.0, "refused", at_once=True)
    assert other.take(other.opens_at)


KILLED = """
import sys
from pathlib import Path
from routes.gateway.healthfile import HealthFile
from routes.gateway.records import TargetRecord
file = HealthFile(Path(sys.argv[1]))
health = file.of(TargetRecord(1, 1, "http://engine", "m"))
print(health.take(health.opens_at), flush=True)
sys.stdin.read()
"""


def test_a_worker_that_was_killed_leaves_its_probe(files, tmp_path):
    health = files().of(TARGET)
    health.failed(0.0, "refused", at_once=True)
    now = health.opens_at
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "8081")],
        cwd=BASE_DIR,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as worker:
        assert worker.stdout.readline() == b"1\n"
        health.tend()
        assert health.take(now) is None
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        assert health.state(now) == "half_open"
        assert not health.may_take(now)
        health.tend()
        assert health.may_take(now)
        assert health.take(now)


def test_a_gateway_begins_anew_and_a_worker_does_not(files):
    first = files()
    first.of(TARGET).failed(0.0, "refused", at_once=True)
    assert files().of(TARGET).state(0.0) == "open"
    for file in files.opened:
        file.close()
    files.opened.clear()
    assert files().of(TARGET).state(0.0) == "closed"


def test_targets_addresses_and_gateways_have_their_own(files, tmp_path):
    file, neighbour = files(), HealthFile(tmp_path / "8082")
    file.of(TARGET).failed(0.0, "refused", at_once=True)
    assert file.of(TargetRecord(2, 1, "http://engine", "m")).may_take(0.0)
    assert file.of(TargetRecord(1, 1, "http://elsewhere", "m")).may_take(0.0)
    assert neighbour.of(TARGET).may_take(0.0)
    assert not file.of(TARGET).may_take(0.0)
    neighbour.close()


def test_targets_beyond_the_file_are_each_workers_own(files, monkeypatch):
    monkeypatch.setattr(healthfile, "PLACES", 2)
    one, other = files(), files()
    records = [TargetRecord(number, 1, "http://engine", "m") for number in range(3)]
    for record in records:
        one.of(record).failed(0.0, "refused", at_once=True)
    assert [other.of(record).may_take(0.0) for record in records] == [False, False, True]


AT_ONCE = """
import sys
from pathlib import Path
from routes.gateway.healthfile import HealthFile
from routes.gateway.records import TargetRecord
file = HealthFile(Path(sys.argv[1]))
sys.stdin.readline()
for number in range(300):
    file.of(TargetRecord(number, 1, "http://engine", "m")).failed(0.0, str(number), at_once=True)
"""


def test_workers_that_begin_at_once_do_not_mix_targets_up(files, tmp_path):
    file = files()
    begun = [
        subprocess.Popen(
            [sys.executable, "-c", AT_ONCE, str(tmp_path / "8081")], cwd=BASE_DIR, stdin=subprocess.PIPE
        )
        for _n in range(3)
    ]
    for worker in begun:
        worker.stdin.close()
    assert [worker.wait() for worker in begun] == [0, 0, 0]
    reasons = [file.of(TargetRecord(number, 1, "http://engine", "m")).reason for number in range(300)]
    assert reasons == [str(number) for number in range(300)]
    assert file._numbers[0] == 300


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["take", "answered", "failed", "unreachable", "undecided", "end", "wait"]),
    ),
    max_size=60,
)


def test_whatever_workers_do_there_is_one_probe_and_a_way_back(tmp_path):
    """``end`` is a worker that is killed and replaced, with whatever it held."""
    files = [HealthFile(tmp_path) for _n in range(3)]
    ids = itertools.count()

    @settings(deadline=None)
    @given(STEPS)
    @example([(0, "unreachable"), (0, "wait"), (0, "take"), (0, "end"), (1, "take"), (2, "take")])
    def check(steps):
        target = TargetRecord(next(ids), 1, "http://engine", "m")
        workers = [file.of(target) for file in files]
        probes = [0, 0, 0]
        now = 1000.0
        for who, what in steps:
            health = workers[who]
            if what == "take":
                found = health.take(now)
                if found:
                    assert sum(map(bool, probes)) == 0
                    probes[who] = found
                assert found is not None or health.pause_s
            elif what == "answered":
                health.answered()
                assert health.state(now) == "closed"
            elif what in {"failed", "unreachable"}:
                health.failed(now, "did not answer", at_once=what == "unreachable")
            elif what == "undecided":
                health.undecided(probes[who])
            elif what == "end":
                files[who].close()
                files[who] = HealthFile(tmp_path)
                workers[who] = files[who].of(target)
            else:
                now = max(now, health.opens_at)
            if not workers[who]._probe:
                probes[who] = 0
            for each in workers:
                each.tend()
            assert len({(each.failures, each.pause_s, each.opens_at) for each in workers}) == 1
            assert health.pause_s <= LONGEST_S
            assert health.opens_at <= now + LONGEST_S
        for health, probe in zip(workers, probes, strict=True):
            health.undecided(probe)
        now = max(now, workers[0].opens_at)
        assert all(health.may_take(now) for health in workers)

    check()
    for file in files:
        file.close()


# through requests


def test_a_worker_sends_nothing_to_what_another_found_dead(files, monkeypatch):
    monkeypatch.setattr(rules, "FIRST_S", 3600.0)
    monkeypatch.setattr(rules, "LONGEST_S", 3600.0)

    async def main():
        async with (
            Upstream(BOOM) as bad,
            Upstream() as good,
            Gateway(health=files().of) as one,
            Gateway(health=files().of) as other,
        ):
            for gateway in (one, other):
                gateway.add_route("qwen3-8b", bad.url, good.url)
            while len(bad.calls) < FAILURES:
                assert (await one.chat()).status == 200
            for _ in range(10):
                assert (await other.chat()).status == 200
            assert len(bad.calls) == FAILURES

    run(main())


def test_readmission_is_everyones(files):
    async def main():
        async with (
            Upstream() as engine,
            Gateway(health=files().of) as one,
            Gateway(health=files().of) as other,
        ):
            for gateway in (one, other):
                gateway.add_route("qwen3-8b", engine.url)
            engine.answer = BOOM
            for _ in range(FAILURES):
                assert (await one.chat()).status == 500
            reply = await other.chat()
            assert (reply.status, reply.error["code"]) == (503, "no_target_available")
            assert "status 500" in reply.error["message"]
            engine.answer = silent
            (target,) = one.app.targets.all()
            target.health.opens_at = 0
            calls = len(engine.calls)
            probe = asyncio.create_task(one.chat())
            await until(lambda: len(engine.calls) > calls)
            for gateway in (other, one) * 3:
                assert (await gateway.chat()).status == 503
            assert len(engine.calls) == calls + 1
            # it brings the target back: for the other, too
            engine.calls[-1].writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            assert (await probe).status == 200
            engine.answer = whole()
            assert (await other.chat()).status == 200

    run(main())


# two workers of a process


@pytest.fixture
def business() -> Iterator[Business]:
    yield Business.objects.create(team=Team.objects.create(name="team"), name="shop")
    clear()


@pytest.mark.django_db(transaction=True)
def test_two_workers_share_ejection_and_probe_and_outlive_each_other(business, tmp_path):
    with upstream_thread(BOOM) as bad, upstream_thread() as good:
        route = Route.objects.create(name="qwen3-8b", policy="least_busy")
        row = Target.objects.create(route=route, base_url=bad.url)
        Target.objects.create(route=route, base_url=good.url)
        _, text = issue(business)
        gateway = GatewayProcess(tmp_path, workers=2).start()
        try:
            # as a third worker sees it
            file = HealthFile(tmp_path / "gateway" / "health" / str(gateway.port))
            health = file.of(TargetRecord(row.id, route.id, bad.url, ""))
            first, second = gateway.workers()
            chat = {"model": "qwen3-8b", "messages": [{"role": "user", "content": "hi"}]}

            def ask(client) -> int:
                return client.post("/v1/chat/completions", json=chat).status_code

            with gateway.caller_of(first, text) as caller, gateway.caller_of(second, text) as other:
                while not health.pause_s:
                    assert ask(caller) == 200
                health.opens_at = FAR
                wait_for(lambda: "kvadmin_gateway_targets_ejected 1\n" in gateway.get("/metrics").text)
                calls = len(bad.calls)
                assert [ask(other) for _ in range(10)] == [200] * 10
                assert len(bad.calls) == calls

                # the first worker's next request there is the probe, and gets no answer
                bad.answer = silent
                health.opens_at = 0.0
                with ThreadPoolExecutor(1) as pool:
                    probe = None
                    while len(bad.calls) == calls:
                        if probe is None or probe.done():
                            probe = pool.submit(ask, caller)
                        time.sleep(0.01)
                    assert [ask(other) for _ in range(10)] == [200] * 10
                    assert len(bad.calls) == calls + 1
                    bad.answer = whole()
                    gateway.kill_worker(first)
                    assert probe.exception() is not None
                # its probe is anyone's, and brings the target back
                wait_for(lambda: ask(other) == 200 and not health.pause_s)
                assert len(bad.calls) >= calls + 2
                wait_for(lambda: "kvadmin_gateway_targets_ejected 0\n" in gateway.get("/metrics").text)
            file.close()
        finally:
            gateway.stop()
