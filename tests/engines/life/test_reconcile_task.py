from __future__ import annotations

import threading

import pytest

from engines.launch import reconcile
from engines.tasks import reconcile as task


@pytest.fixture
def looked(monkeypatch):
    """Which hosts were looked at; host 1 does not answer until ``looked.release`` is set."""

    class Looked(list):
        release = threading.Event()
        done = threading.Event()

    seen = Looked()

    def look(host_id: int) -> None:
        if host_id == 1:
            seen.release.wait(30)
            seen.done.set()
        elif host_id == 3:
            raise RuntimeError("a surprise")
        seen.append(host_id)

    monkeypatch.setattr(reconcile, "hosts_to_reconcile", lambda: [1, 2, 3, 4])
    monkeypatch.setattr(reconcile, "reconcile_host", look)
    monkeypatch.setattr(task, "WAIT_S", 0.5)
    yield seen
    seen.release.set()
    assert seen.done.wait(10)


def test_a_slow_host_delays_no_other_and_is_not_looked_at_twice(looked):
    task.reconcile_engines()
    assert sorted(looked) == [2, 4]
    task.reconcile_engines()
    assert sorted(looked) == [2, 2, 4, 4]
    looked.release.set()
    assert looked.done.wait(10)
    assert looked.count(1) <= 1
