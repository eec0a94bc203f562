"""The calls in docs/api.md, sent as they are written: none is refused as wrong or leads nowhere."""

from __future__ import annotations

import re
import shlex

import pytest
from celery.app.task import Task

from engines.choices import EngineState, HostState
from engines.models import EngineStart
from engines.ssh.errors import HostUnreachable
from kvadmin.env import BASE_DIR
from tests.support.api import BASE, Api
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory, OperationFactory
from tests.support.route_factories import KeyFactory

CALL = re.compile(r"^    call .*(?:\n     +.*)*", re.MULTILINE)
CALLS = CALL.findall((BASE_DIR / "docs/api.md").read_text())


@pytest.fixture
def ids(db, monkeypatch):
    """What the page takes for there, by how the page names it."""

    def unreachable(host):
        raise HostUnreachable("No route to the host.", remedy="Check the network.")

    for place in ("engines.logs", "engines.actions.contact_host"):
        monkeypatch.setattr(f"{place}.session_for", unreachable)
    monkeypatch.setattr(Task, "apply_async", lambda self, *args, **kwargs: None)
    host = HostFactory(state=HostState.ONLINE)
    environment = EnvironmentFactory(host=host)
    engine = EngineFactory(host=host, environment=environment, observed=EngineState.STOPPED)
    EngineStart.objects.create(engine=engine, number=1, log_path="/x/log", revision=engine.revision)
    operation = OperationFactory(host=HostFactory())
    key = KeyFactory()
    return {
        "hosts/1/": f"hosts/{host.pk}/",
        "engines/1/": f"engines/{engine.pk}/",
        "operations/UUID/": f"operations/{operation.uuid}/",
        '"host": 1,': f'"host": {host.pk},',
        '"profile": 1}': f'"profile": {engine.revision.profile_id}}}',
        "[1, 2, 3]": f"[{engine.pk}]",
        '"engine": 1}': f'"engine": {engine.pk}}}',
        '"team": 1,': f'"team": {key.business.team_id},',
        '"business": 1,': f'"business": {key.business_id},',
        "keys/1/": f"keys/{key.pk}/",
        "key=1&": f"key={key.pk}&",
    }


def test_there_are_calls():
    assert len(CALLS) > 12


@pytest.mark.parametrize("call", CALLS, ids=lambda call: " ".join(call.split())[:60])
def test_a_call_is_answered(call, ids, administrator):
    for written, there in ids.items():
        call = call.replace(written, there)
    words = iter(shlex.split(call.replace("$KV/", BASE).replace("\\\n", " "))[1:])
    address, body, headers = "", None, {}
    for word in words:
        if word == "-d":
            body = next(words)
        elif word == "-H":
            name, _colon, value = next(words).partition(": ")
            headers[name] = value
        elif not word.startswith("-"):
            address = word
    api = Api(administrator)
    response = api.client.generic(
        "GET" if body is None else "POST",
        address,
        body or "",
        content_type="application/json",
        headers={**api.headers, **headers},
    )
    # the present state may refuse, and the host here is out of reach
    expected = {200, 201, 202, 409, 502}
    assert response.status_code in expected, response.content
