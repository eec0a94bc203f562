"""The OpenAPI document: complete, without warnings, for people who are signed in."""

from __future__ import annotations

from io import StringIO

import pytest
import yaml
from django.core.management import call_command

from tests.support.api import Api, assert_problem


@pytest.fixture(scope="module")
def schema():
    out = StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", stdout=out)
    return yaml.safe_load(out.getvalue())


def operations(schema):
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_each_operation_has_an_id_a_summary_and_its_errors(schema):
    ids = []
    for name, operation in operations(schema):
        ids.append(operation["operationId"])
        assert operation.get("summary"), name
        for status in ("400", "401", "403", "429", "500"):
            content = operation["responses"][status]["content"]
            assert list(content) == ["application/problem+json"], name
        if "{" in name:
            assert "404" in operation["responses"], name
        if name.startswith("POST"):
            assert {"409", "415", "422"} <= set(operation["responses"]), name
            assert any(one["name"] == "Idempotency-Key" for one in operation["parameters"]), name
    assert len(ids) == len(set(ids))


def test_choices_have_names_of_their_own(schema):
    names = [name for name in schema["components"]["schemas"] if name.endswith("Enum")]
    assert {"EngineStateEnum", "OperationStateEnum", "HostStateEnum", "TokenScopeEnum"} <= set(names)
    assert not [name for name in names if any(letter.isdigit() for letter in name)]


def test_secrets_are_written_only(schema):
    for name, component in schema["components"]["schemas"].items():
        if name.endswith("Request"):
            continue
        for secret in ("private_key", "passphrase", "api_key", "secrets", "secret_environment", "digest"):
            assert secret not in component.get("properties", {}), name


def test_it_is_for_people_who_are_signed_in(viewer):
    assert_problem(Api().get("schema"), 401, "not_signed_in")
    assert Api(viewer).get("schema").status_code == 200


def test_it_comes_as_yaml_and_as_json(viewer):
    api = Api(viewer, "read")
    assert yaml.safe_load(api.get("schema").content)["openapi"].startswith("3.")
    assert api.get("schema", Accept="application/json").json()["info"]["title"] == "kvadmin management API"
