"""Schemathesis: made-up requests against the OpenAPI document. No answer is a 5xx or outside of it.

Tasks are not sent: what a request would begin stays a row.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest
import schemathesis
from celery.app.task import Task
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from engines.choices import EngineState, OperationKind, OperationState
from engines.models import EngineStart, OperationLine, OperationStep
from engines.ssh.errors import HostUnreachable
from kvadmin.models import ManagementToken
from tests.support.api import Api
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory, OperationFactory
from tests.support.route_factories import KeyFactory, OutsideTargetFactory

#: what is stored as a secret in the rows below: in no answer
SECRETS = ("very-own-engine-key", "very-own-password", "very-own-variable", "very-own-target-key")
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture
def rows(administrator, monkeypatch, settings):
    """One of each, and nothing that leaves this process."""
    settings.KVADMIN_API_RATES = {"read": "1000000/min", "write": "1000000/min"}
    monkeypatch.setattr(Task, "apply_async", lambda self, *args, **kwargs: None)
    # as Django's own test client does: the test's transaction outlives each request
    for signal in (request_started, request_finished):
        monkeypatch.setattr(signal, "send", lambda *args, **kwargs: [])

    def unreachable(host):
        raise HostUnreachable("No route to the host.", remedy="Check the network.")

    for place in ("engines.logs", "engines.actions.contact_host", "engines.actions.adopt_engine"):
        monkeypatch.setattr(f"{place}.session_for", unreachable)
    host = HostFactory(password=SECRETS[1])
    engine = EngineFactory(
        host=host,
        environment=EnvironmentFactory(host=host),
        api_key=SECRETS[0],
        observed=EngineState.READY,
        revision__secret_environment=f'{{"HF_TOKEN": "{SECRETS[2]}"}}',
    )
    EngineStart.objects.create(engine=engine, number=1, log_path="/x/log", revision=engine.revision)
    operation = OperationFactory(
        host=host, engine=engine, kind=OperationKind.START, state=OperationState.FAILED
    )
    OperationStep.objects.create(operation=operation, position=0, name="connect")
    OperationLine.objects.create(operation=operation, text="a line")
    key = KeyFactory()
    target = OutsideTargetFactory(api_key=SECRETS[3])
    api = Api(administrator)
    return {
        "headers": api.headers,
        "ids": {
            "hosts": host.pk,
            "engines": engine.pk,
            "profiles": engine.revision.profile.pk,
            "operations": str(operation.uuid),
            "users": administrator.pk,
            "teams": key.business.team_id,
            "businesses": key.business_id,
            "keys": key.pk,
            "routes": target.route_id,
            "tokens": ManagementToken.objects.get().pk,
        },
    }


console = cache(get_wsgi_application)


def served(environ: dict, start_response: Callable) -> Iterable[bytes]:
    """The console; and the document itself, which is read before there is a database."""
    if environ["PATH_INFO"] == "/openapi.json":
        start_response("200 OK", [("Content-Type", "application/json")])
        return [OpenApiJsonRenderer().render(SchemaGenerator().get_schema(request=None, public=True))]
    return console()(environ, start_response)


schema = schemathesis.openapi.from_wsgi("/openapi.json", served).exclude(
    # a stream; and what would take away the caller's own right to call
    operation_id=["operations_events_retrieve", "tokens_destroy", "users_partial_update"]
)


#: made-up requests for each operation; KVADMIN_TEST_EXAMPLES=60 looks for rarer mistakes and takes its time
EXAMPLES = int(os.environ.get("KVADMIN_TEST_EXAMPLES", "3"))


def settings_for(examples: int) -> settings:
    """The same requests at every run; the machine's load is no reason to fail."""
    unhealthy = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=unhealthy
    )


def check(case: schemathesis.Case, rows: dict[str, Any]) -> None:
    kind = case.operation.path.removeprefix("/api/manage/v1/").split("/")[0]
    for name in ("id", "uuid"):
        # half of the made-up ids are replaced by one that is there
        made_up = str(case.path_parameters.get(name, ""))
        if made_up and kind in rows["ids"] and zlib.crc32(made_up.encode(errors="replace")) % 2:
            case.path_parameters[name] = rows["ids"][kind]
    response = case.call(headers=rows["headers"])
    # every operation documents 500, so that has to be looked for; 502 is what a host did, not kvadmin
    assert response.status_code < 500 or response.status_code == 502, response.text
    case.validate_response(response, checks=CHECKS)
    for secret in SECRETS:
        assert secret not in response.text


@pytest.mark.timeout(max(120, 20 * EXAMPLES))
@schema.parametrize()
@settings_for(EXAMPLES)
def test_every_answer_is_as_documented(case, rows):
    check(case, rows)
