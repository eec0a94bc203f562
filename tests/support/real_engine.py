"""One real vLLM (CPU build) with a tiny model, for all tests that talk to it through the gateway."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kvadmin.env import BASE_DIR
from tests.support import real_vllm
from tests.support.up import free_ports

#: what its callers send, and what it calls its model
KEY = "sk-engine"
SERVED = ("first", "second")
MAX_MODEL_LEN = 2048
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_ENABLE_RESPONSES_API_STORE": "1",
    "VLLM_API_KEY": KEY,
}
START_S = 900


@pytest.fixture(scope="session")
def real_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its base URL. A start takes a minute or more and 3 GB, so every test has the same one."""
    executable = real_vllm.executable()
    folder = tmp_path_factory.mktemp("vllm")
    script = BASE_DIR / "kvadmin" / "demo" / "tiny_model.py"
    python = str(executable.parent / "python")
    subprocess.run([python, str(script), str(folder / "tiny")], check=True, timeout=600)
    (port,) = free_ports(1)
    words = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", *SERVED]
    words += ["--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", "8", "--enforce-eager"]
    words += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [str(executable), "serve", str(folder / "tiny"), *words],
            env={**os.environ, **ENVIRONMENT},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(url, server, folder / "log")
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def together(items: list[pytest.Item]) -> None:
    """Put the tests that share it at the end, so that it does not wait beside all others."""
    items.sort(key=lambda item: "real_engine" in getattr(item, "fixturenames", ()))


def running(url: str) -> float:
    """How many requests it works at."""
    page = httpx.get(f"{url}/metrics").text
    return sum(map(float, re.findall(r"^vllm:num_requests_running\{.*\} (\S+)$", page, re.MULTILINE)))


def _wait_until_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + START_S
    while time.monotonic() < limit and server.poll() is None:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(1)
    raise AssertionError(log.read_text()[-3000:])
