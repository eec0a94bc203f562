"""The gateway before a real vLLM (CPU build): the official SDKs, counts, and requests whose caller goes."""

from __future__ import annotations

import asyncio
import json
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
from tests.support.gateway import Gateway, run, until
from tests.support.up import free_ports
from tests.support.upstream import compact

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_API_KEY": "sk-engine",
}
START_S = 900


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a vLLM that serves a tiny model as `first` and as `second`."""
    executable = real_vllm.executable()
    folder = tmp_path_factory.mktemp("vllm")
    script = BASE_DIR / "kvadmin" / "demo" / "tiny_model.py"
    python = str(executable.parent / "python")
    subprocess.run([python, str(script), str(folder / "tiny")], check=True, timeout=600)
    (port,) = free_ports(1)
    words = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "first", "second"]
    words += ["--max-model-len", "2048", "--max-num-seqs", "8", "--enforce-eager"]
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
        wait_until_ready(url, server, folder / "log")
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def wait_until_ready(url: str, server: subprocess.Popen, log: Path) -> None:
    limit = time.monotonic() + START_S
    while time.monotonic() < limit and server.poll() is None:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(1)
    raise AssertionError(log.read_text()[-3000:])


def running(url: str) -> float:
    page = httpx.get(f"{url}/metrics").text
    return sum(map(float, re.findall(r"^vllm:num_requests_running\{.*\} (\S+)$", page, re.MULTILINE)))


def add_route(gateway: Gateway, url: str, **fields) -> None:
    target = {"base_url": url, "api_key": "sk-engine", "model": "second", "vllm_version": real_vllm.VERSION}
    gateway.add_route("qwen3-8b", {**target, "max_model_len": 2048}, **fields)


def test_the_official_sdks_are_served_as_by_their_makers(engine):
    async def main():
        async with Gateway() as gateway:
            add_route(gateway, engine)
            script = await asyncio.create_subprocess_exec(
                str(real_vllm.executable().parent / "python"),
                str(BASE_DIR / "tests/support/sdk_calls.py"),
                f"http://127.0.0.1:{gateway.port}",
                gateway.secret,
                "qwen3-8b",
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await script.communicate()
            return json.loads(output), list(gateway.rows)

    found, rows = run(main(), 600)
    assert found["chat"] == {"model": "qwen3-8b", "tokens": [found["chat"]["tokens"][0], 8], "id": True}
    assert found["stream"] == {"models": ["qwen3-8b"], "usage": [], "finish": "length"}
    assert found["stream_usage"] == 16
    assert found["completions"] == 5
    assert found["responses"]["model"] == "qwen3-8b"
    assert found["responses_stream"] == ["response.created", "response.completed", "qwen3-8b"]
    assert found["models"] == [["qwen3-8b", 2048]]
    assert found["model"] == "qwen3-8b"
    assert found["errors"] == {
        "embeddings": ["NotFoundError", "path_not_served", True],
        "too_long": ["BadRequestError", "context_length_exceeded", True],
        "no_model": ["NotFoundError", "model_not_found", True],
        "bad_value": ["BadRequestError", "invalid_request", True],
        "bad_key": ["AuthenticationError", "invalid_api_key", True],
    }
    assert found["messages"] == {"model": "qwen3-8b", "tokens": 8}
    assert found["messages_stream"] == {"model": "qwen3-8b", "tokens": 8}
    assert found["count_tokens"]
    assert found["claude_models"] == ["qwen3-8b"]
    assert found["claude_errors"]["no_model"][::2] == ["NotFoundError", True]
    assert found["claude_errors"]["bad_key"][::2] == ["AuthenticationError", True]
    counted = [row for row in rows if row.status == 200 and row.tokens_source]
    assert len(counted) == 9
    assert {row.tokens_source for row in counted} == {"engine"}
    assert all(row.prompt_tokens and row.completion_tokens for row in counted)


@pytest.mark.parametrize("streamed", [False, True])
def test_the_engine_stops_when_the_caller_goes(engine, streamed):
    async def main():
        async with Gateway() as gateway:
            add_route(gateway, engine, continuous_usage=True)
            value = {"model": "qwen3-8b", "messages": [{"role": "user", "content": "hi"}], "stream": streamed}
            body = compact({**value, "max_tokens": 1900, "ignore_eos": True})
            async with gateway.client() as client:
                client.write(gateway.head_of("/v1/chat/completions", body))
                if streamed:
                    for _ in range(5):
                        await client.reader.readuntil(b"\n\n")
                else:
                    await until(lambda: running(engine) == 1)
                client.abort()
            await until(lambda: gateway.rows)
            await until(lambda: running(engine) == 0)
            (row,) = gateway.rows
            assert row.error_code == "caller_gone"
            if streamed:
                assert row.tokens_source == "partial"
                assert 1 <= row.completion_tokens < 1900
            else:
                assert row.tokens_source == "estimated"

    run(main(), 300)
