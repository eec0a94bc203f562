from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection

from engines.choices import EngineState, HostKind
from engines.metrics import poller as poller_module
from engines.metrics.poller import Poller
from engines.metrics.schedule import ends_minute, interval_for, next_due
from engines.models import Engine
from engines.tasks import poll as poll_task
from tests.engines.metrics.readings import rows
from tests.support.factories import EngineFactory, HostFactory
from tests.support.simulated_fleet import Behaviour, simulated_fleet

TABLES = ("engines_sample", "engines_minute", "engines_hour")


@pytest.fixture
def empty_tables(transactional_db):
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(TABLES)}")


@pytest.fixture
def quick(settings, monkeypatch):
    """Five polls a second, so that a test is short."""
    settings.KVADMIN_POLL_SECONDS = 0.2
    monkeypatch.setattr(poller_module, "_REFRESH_S", 0.2)
    monkeypatch.setattr(poller_module, "_FLUSH_S", 0.1)


def engines_of(fleet) -> list[Engine]:
    host = HostFactory(kind=HostKind.SSH, address="127.0.0.1")
    return [
        EngineFactory(host=host, port=port, observed=EngineState.READY, api_key="engine-key")
        for port in fleet.ports
    ]


def wait_for(condition, seconds: float = 15) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


@contextmanager
def polling(**options):
    poller = Poller(**options)
    thread = threading.Thread(target=poller.run_here)
    thread.start()
    try:
        yield poller
    finally:
        poller.stop()
        thread.join(20)
        assert not thread.is_alive()


def samples_of(engine: Engine) -> list[dict]:
    return rows("SELECT * FROM engines_sample WHERE engine_id = %s ORDER BY taken_at", engine.pk)


def test_it_reads_and_keeps_what_engines_say(empty_tables, quick):
    with simulated_fleet(2) as fleet:
        engines = engines_of(fleet)
        with polling():
            wait_for(lambda: all(len(samples_of(engine)) >= 3 for engine in engines))
    found = samples_of(engines[0])
    assert found[-1]["prompt_tokens"] >= found[0]["prompt_tokens"]
    assert 0 <= found[0]["kv_usage_ratio"] <= 1
    assert found[0]["ttft"] is not None, "the first reading is the baseline of the histograms"
    assert found[1]["ttft"] is None
    engines[0].refresh_from_db()
    assert engines[0].answered_at == found[-1]["taken_at"]
    assert engines[0].seq > 0


@pytest.mark.parametrize(
    "behaviour", [Behaviour.HANGS, Behaviour.DEAD, Behaviour.HTML, Behaviour.ERROR, Behaviour.SLOW]
)
def test_an_engine_that_does_not_answer_has_no_row_and_delays_no_other(empty_tables, quick, behaviour):
    with simulated_fleet(3) as fleet:
        fleet.engines[1].behaviour = behaviour
        engines = engines_of(fleet)
        with polling(timeout_s=1):
            wait_for(lambda: Engine.objects.get(pk=engines[1].pk).polled_at is not None)
            count = len(samples_of(engines[0]))
            wait_for(lambda: len(samples_of(engines[0])) >= count + 3)
    engines[1].refresh_from_db()
    assert engines[1].answered_at is None
    assert samples_of(engines[1]) == []
    assert len(samples_of(engines[2])) >= 3


def test_an_engine_that_stops_answering_keeps_the_time_of_its_last_answer(empty_tables, quick):
    with simulated_fleet(1) as fleet:
        (engine,) = engines_of(fleet)
        with polling(timeout_s=1):
            wait_for(lambda: samples_of(engine))
            fleet.engines[0].behaviour = Behaviour.ERROR
            time.sleep(0.5)
            last = samples_of(engine)[-1]["taken_at"]
            seq = Engine.objects.get(pk=engine.pk).seq
            wait_for(lambda: (Engine.objects.get(pk=engine.pk).polled_at - last).total_seconds() > 0.5)
    engine.refresh_from_db()
    assert engine.answered_at == last
    assert samples_of(engine)[-1]["taken_at"] == last
    assert engine.seq >= seq
    assert engine.observed == EngineState.READY


def test_the_key_is_sent_only_where_it_is_asked_for(empty_tables, quick):
    with simulated_fleet(2) as fleet:
        fleet.engines[1].behaviour = Behaviour.KEY
        engines = engines_of(fleet)
        with polling():
            wait_for(lambda: samples_of(engines[1]))
    assert fleet.engines[0].authorizations == []
    assert "Bearer engine-key" in fleet.engines[1].authorizations


def test_it_takes_up_new_engines_and_leaves_stopped_ones(empty_tables, quick):
    with simulated_fleet(2) as fleet:
        engines = engines_of(fleet)
        Engine.objects.filter(pk=engines[1].pk).update(observed=EngineState.STOPPED)
        with polling():
            wait_for(lambda: samples_of(engines[0]))
            assert fleet.engines[1].requests == 0
            Engine.objects.update(observed=EngineState.READY)
            wait_for(lambda: samples_of(engines[1]))
            Engine.objects.filter(pk=engines[0].pk).update(observed=EngineState.STOPPED)
            time.sleep(0.6)
            before = fleet.engines[0].requests
            count = fleet.engines[1].requests
            wait_for(lambda: fleet.engines[1].requests >= count + 3)
            assert fleet.engines[0].requests == before


def test_readings_wait_while_the_database_is_away(empty_tables, quick, monkeypatch):
    away = threading.Event()
    away.set()
    write = poller_module.SampleStore.write

    def sometimes(self, samples):
        if away.is_set():
            raise OperationalError("the server is gone")
        write(self, samples)

    monkeypatch.setattr(poller_module.SampleStore, "write", sometimes)
    with simulated_fleet(1) as fleet:
        (engine,) = engines_of(fleet)
        with polling() as poller:
            wait_for(lambda: poller.figures.answered >= 5)
            assert samples_of(engine) == []
            away.clear()
            wait_for(lambda: len(samples_of(engine)) >= 5)


def test_a_locked_engine_does_not_hold_the_poller_up(empty_tables, quick):
    from django.db import transaction

    with simulated_fleet(2) as fleet:
        engines = engines_of(fleet)
        with transaction.atomic():
            Engine.objects.select_for_update().get(pk=engines[0].pk)
            with polling():
                wait_for(lambda: len(samples_of(engines[0])) >= 3)
                wait_for(lambda: Engine.objects.get(pk=engines[1].pk).polled_at is not None)
            assert len(samples_of(engines[1])) >= 1
            assert Engine.objects.get(pk=engines[0].pk).polled_at is None, "its row was locked: passed over"


def test_a_reading_that_no_row_holds_is_dropped_and_said_and_no_other(
    empty_tables, quick, monkeypatch, caplog
):
    read = poller_module.PageReader.read

    def odd(self, text, *, histograms):
        page = read(self, text, histograms=histograms)
        if "odd" in text:
            page.values["requests_running"] = "no number"
        return page

    bodies = poller_module._body

    with simulated_fleet(2) as fleet:
        engines = engines_of(fleet)

        async def body(response):
            mark = b"\n# odd\n" if response.url.port == engines[0].port else b""
            return await bodies(response) + mark

        monkeypatch.setattr(poller_module, "_body", body)
        monkeypatch.setattr(poller_module.PageReader, "read", odd)
        with polling():
            wait_for(lambda: len(samples_of(engines[1])) >= 3)
    assert samples_of(engines[0]) == []
    assert Engine.objects.get(pk=engines[0].pk).polled_at is not None
    assert f"a reading of engine {engines[0].pk} cannot be stored" in caplog.text
    assert f"a reading of engine {engines[1].pk} " not in caplog.text


def test_an_unexpected_error_with_one_engine_is_logged_and_the_others_go_on(
    empty_tables, quick, monkeypatch, caplog
):
    bodies = poller_module._body
    with simulated_fleet(2) as fleet:
        engines = engines_of(fleet)

        async def body(response):
            if response.url.port == engines[0].port:
                raise KeyError("nobody thought of this")
            return await bodies(response)

        monkeypatch.setattr(poller_module, "_body", body)
        with polling():
            wait_for(lambda: len(samples_of(engines[1])) >= 3)
            wait_for(lambda: Engine.objects.get(pk=engines[0].pk).polled_at is not None)
    assert samples_of(engines[0]) == []
    assert Engine.objects.get(pk=engines[0].pk).answered_at is None
    assert f"the metrics of engine {engines[0].pk} cannot be read" in caplog.text


def test_an_unexpected_error_of_the_writer_loses_no_reading(empty_tables, quick, monkeypatch, caplog):
    failing = threading.Event()
    failing.set()
    write = poller_module.SampleStore.write

    def sometimes(self, samples):
        if failing.is_set():
            raise RuntimeError("nobody thought of this")
        write(self, samples)

    monkeypatch.setattr(poller_module.SampleStore, "write", sometimes)
    with simulated_fleet(1) as fleet:
        (engine,) = engines_of(fleet)
        with polling() as poller:
            wait_for(lambda: poller.figures.answered >= 3 and "goes on" in caplog.text)
            failing.clear()
            wait_for(lambda: len(samples_of(engine)) >= 3)


def test_a_doubled_tick_begins_no_second_poller(empty_tables, quick):
    with simulated_fleet(1) as fleet:
        (engine,) = engines_of(fleet)
        try:
            assert poll_task.keep_polling() is True
            first = poll_task._running
            assert poll_task.keep_polling() is True
            assert poll_task._running is first
            wait_for(lambda: samples_of(engine))
        finally:
            poll_task.stop_polling()
    assert not first.thread.is_alive()


def test_another_process_with_the_lock_polls_alone(empty_tables, quick):
    lock = poll_task._locked()
    assert lock is not None
    assert poll_task.keep_polling() is False
    lock.close()
    try:
        assert poll_task.keep_polling() is True
    finally:
        poll_task.stop_polling()


def test_polling_ends_with_the_lock_and_begins_anew_at_the_next_tick(empty_tables, quick):
    try:
        assert poll_task.keep_polling() is True
        first = poll_task._running
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s",
                [poll_task._LOCK],
            )
        wait_for(lambda: not first.thread.is_alive())
        assert poll_task.keep_polling() is True
        assert poll_task._running is not first
    finally:
        poll_task.stop_polling()


def test_many_engines_are_polled_less_often(settings):
    settings.KVADMIN_POLL_SECONDS, settings.KVADMIN_POLL_SECONDS_MANY = 5, 15
    assert interval_for(300) == 5
    assert interval_for(301) == 15


def test_polls_are_spread_over_the_interval():
    per_second = [0] * 15
    for engine_id in range(1, 1501):
        per_second[int(next_due(engine_id, 15, 1_000_000_005.0) % 15)] += 1
    assert max(per_second) <= 110
    assert min(per_second) >= 90


@pytest.mark.parametrize("interval", [1.0, 5.0, 15.0, 60.0])
def test_an_engine_is_due_once_in_each_interval(interval):
    due = next_due(7, interval, 1_000_000_000.0)
    for _ in range(50):
        later = next_due(7, interval, due)
        assert later == pytest.approx(due + interval)
        assert next_due(7, interval, (due + later) / 2) == pytest.approx(later)
        due = later


@pytest.mark.parametrize("interval", [1.0, 5.0, 7.0, 15.0])
def test_one_poll_in_each_minute_ends_it(interval):
    due, minutes = next_due(3, interval, 1_000_000_000.0), []
    for _ in range(int(600 / interval)):
        if ends_minute(due, interval):
            minutes.append(due // 60)
        due = next_due(3, interval, due)
    assert minutes == sorted(set(minutes))
    assert len(minutes) >= 9
