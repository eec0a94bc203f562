"""bench/chaos.py, shortly: what is killed takes its own requests with it, and nothing of the ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kvadmin.env import BASE_DIR

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_the_ledger_outlives_every_kill():
    # with services of its own, which it may kill
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in {"DATABASE_URL", "VALKEY_URL"} and not name.startswith("KVADMIN_")
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.chaos", "--seconds", "2", "--callers", "12", "--json"],
        cwd=BASE_DIR,
        env=inherited,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["answered"] > 200
    assert found["left_by_their_caller"] > 5
    assert found["failed_on_the_killed_part"] > 5
    wrong = (
        "rows_missing",
        "rows_doubled",
        "token_error",
        "rows_unlike_the_engine",
        "rows_unlike_the_caller",
    )
    assert {name: found[name] for name in (*wrong, "leases_left", "failed_elsewhere")} == dict.fromkeys(
        (*wrong, "leases_left", "failed_elsewhere"), 0
    ), done.stdout
