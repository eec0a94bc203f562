"""Load generators that people use, hey and locust, through a gateway's process on a real vLLM."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvadmin.env import BASE_DIR
from tests.routes.usage.support import clear, rows
from tests.support import locust_env
from tests.support import real_engine as engine
from tests.support.gateway_process import GatewayProcess, wait_for
from tests.support.route_factories import KeyFactory, OutsideTargetFactory, RouteFactory

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800), pytest.mark.django_db(transaction=True)]

MODEL = "qwen3-8b-v1"


@dataclass
class Served:
    gateway: GatewayProcess
    key: str

    def usage(self) -> list[dict[str, Any]]:
        return rows("SELECT * FROM routes_usage")


@pytest.fixture
def served(transactional_db: None, real_engine: str, tmp_path: Path) -> Iterator[Served]:
    target = {"base_url": real_engine, "api_key": engine.KEY, "model": "second"}
    OutsideTargetFactory(route=RouteFactory(name=MODEL), **target)
    key = KeyFactory(requests_per_minute=100_000, tokens_per_minute=10_000_000, concurrent=64)
    gateway = GatewayProcess(tmp_path, workers=2).start()
    yield Served(gateway, key.secret)
    gateway.stop()
    clear()


def test_hey_gets_an_answer_to_every_request(served, tmp_path):
    hey = shutil.which("hey")
    assert hey, "There is no hey to make load with. Install it: apt-get install hey."
    body = tmp_path / "body.json"
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    body.write_text(json.dumps(asked))
    words = ["-n", "96", "-c", "16", "-t", "300", "-m", "POST", "-T", "application/json", "-D", str(body)]
    words += ["-H", f"Authorization: Bearer {served.key}", f"{served.gateway.url}/v1/chat/completions"]
    said = subprocess.run([hey, *words], check=True, capture_output=True, text=True).stdout
    assert re.findall(r"\[(\d+)\]\s+(\d+) responses", said) == [("200", "96")], said
    assert "Error distribution" not in said
    found = wait_for(lambda: len(made := served.usage()) == 96 and made)
    assert {(row["status"], row["tokens_source"]) for row in found} == {(200, "engine")}
    assert len({row["request_id"] for row in found}) == 96


def test_each_request_of_locust_has_one_row_with_what_it_was_told(served, tmp_path):
    ids = tmp_path / "ids"
    words = ["-f", str(BASE_DIR / "tests/support/locustfile.py"), "--host", served.gateway.url]
    words += ["--headless", "-u", "12", "-r", "12", "-t", "10s", "--stop-timeout", "120", "--json"]
    environment = {"KVADMIN_KEY": served.key, "KVADMIN_MODEL": MODEL, "KVADMIN_IDS": str(ids)}
    done = subprocess.run(
        [str(locust_env.executable()), *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = {name: one for one in json.loads(done.stdout) for name in [one["name"]]}
    assert told.keys() == {"chat", "stream"}
    assert [one["num_failures"] for one in told.values()] == [0, 0]
    wanted = {}
    for line in ids.read_text().splitlines():
        request_id, prompt, completion = line.split()
        wanted[request_id] = (int(prompt), int(completion), "engine")
    assert len(wanted) == sum(one["num_requests"] for one in told.values()) > 12
    found = wait_for(lambda: len(made := served.usage()) >= len(wanted) and made)
    counted = ("prompt_tokens", "completion_tokens", "tokens_source")
    assert sorted((str(row["request_id"]), *map(row.get, counted)) for row in found) == sorted(
        (request_id, *values) for request_id, values in wanted.items()
    )
    assert sum(row["streamed"] for row in found) == told["stream"]["num_requests"]
