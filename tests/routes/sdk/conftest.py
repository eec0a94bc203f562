"""The gateway's process before an engine's double, and what the official SDKs are pointed at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvadmin.models import Team
from routes.models import Business, Route, Target
from tests.routes.usage.support import clear
from tests.support.gateway_process import GatewayProcess, issue, upstream_thread, wait_for
from tests.support.upstream import Upstream

MODEL = "qwen3-8b"


class Shop:
    """A business with its route, and keys for it."""

    def __init__(self, gateway: GatewayProcess, engine: Upstream):
        self.gateway, self.engine = gateway, engine
        self.business = Business.objects.create(team=Team.objects.create(name="team"), name="shop")
        self.route = Route.objects.create(name=MODEL, max_tokens=1000, first_byte_s=1.5)
        Target.objects.create(
            route=self.route, base_url=engine.url, api_key="sk-engine", model="Qwen/Qwen3-8B"
        )
        self.key = self.issue()

    def issue(self, **fields: Any) -> str:
        """A key's text, once the gateway knows it."""
        key, text = issue(self.business, f"key {self.business.keys.count()}", **fields)
        shown = {"authorization": f"Bearer {text}"}
        wait_for(lambda: self.gateway.get("/v1/models", shown).status_code == 200)
        assert key.pk
        return text


@pytest.fixture(scope="module")
def gateway_process(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: Any) -> Iterator[Any]:
    with django_db_blocker.unblock():
        running = GatewayProcess(tmp_path_factory.mktemp("gateway")).start()
    yield running
    running.stop()


@pytest.fixture
def shop(transactional_db: None, gateway_process: GatewayProcess) -> Iterator[Shop]:
    with upstream_thread() as engine:
        yield Shop(gateway_process, engine)
    clear()
