"""bench/revocation.py, shortly: every worker comes to know of a key under load, and no request fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kvadmin.env import BASE_DIR

pytestmark = pytest.mark.slow


def test_every_worker_comes_to_know():
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in {"DATABASE_URL", "VALKEY_URL"} and not name.startswith("KVADMIN_")
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.revocation", "--count", "2", "--json"],
        cwd=BASE_DIR,
        env=inherited,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["keys"], found["failed"]) == (2, 0)
    assert found["answered"] > 0
    for what in ("issued", "revoked"):
        assert 0 < found[f"{what}_p50_s"] <= found[f"{what}_worst_s"]
