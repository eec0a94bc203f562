from __future__ import annotations

import os
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "data" / "nvidia_smi"

_FAKE = """#!/bin/sh
cd "{folder}" || exit 1
status=$(cat exit 2>/dev/null || echo 0)
pid() {{ sed -e "s/@PID1@/$(cat pid1 2>/dev/null)/" -e "s/@PID2@/$(cat pid2 2>/dev/null)/" "$1"; }}
case "$*" in
  *--query-gpu=*mig.mode*) cat query; exit $status;;
  *--query-gpu=*) if [ -e query_old ]; then cat query_old; exit 0; fi; cat query; exit $status;;
  *--query-compute-apps=*) pid apps;;
  -L) cat list;;
  *) cat header;;
esac
"""


@pytest.fixture
def nvidia_smi(monkeypatch, tmp_path):
    """Put an nvidia-smi on the PATH that answers as recorded: ``nvidia_smi("mig", pid1=…)``."""

    def use(case: str, **pids: int) -> None:
        folder = tmp_path / "recorded"
        folder.mkdir()
        for path in (DATA / case).iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        for name, pid in pids.items():
            (folder / name).write_text(str(pid))
        install(_FAKE.format(folder=folder))

    def install(script: str) -> None:
        tools = tmp_path / "bin"
        tools.mkdir(exist_ok=True)
        (tools / "nvidia-smi").write_text(script)
        (tools / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    use.install = install
    return use
