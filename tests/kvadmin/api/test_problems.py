"""Every error is a problem with a code, a sentence and a remedy, whoever raised it."""

from __future__ import annotations

import pytest

from kvadmin.actions import Conflict, Denied, Invalid
from kvadmin.api import problems
from kvadmin.api.tokens import TokenViewSet
from kvadmin.crypto import SecretUnreadable
from tests.support.api import BASE, Api, assert_problem


@pytest.fixture
def api(viewer):
    return Api(viewer)


def send(api, raw: bytes, content_type="application/json"):
    return api.client.generic("POST", f"{BASE}tokens/", raw, content_type=content_type, headers=api.headers)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"{", "line 1"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"name": NaN}', "NaN"),
        (b'{"name": "a", "name": "b"}', "twice"),
        (b'{"name": "\\u0000"}', "NUL"),
        (b'{"name": "\\ud800"}', "surrogate"),
        (b"[" * 100_000, "deep"),
        (b"[" * 100 + b"]" * 100, "deep"),
        (b'{"name": ' + b"1" * 5000 + b"}", "number"),
    ],
)
def test_a_malformed_body_is_named(api, raw, said):
    assert said in assert_problem(send(api, raw), 400, "malformed")["detail"]


@pytest.mark.parametrize("raw", [b"", b"[]", b"1", b'"x"', b"null"])
def test_a_body_that_is_no_object_is_refused(api, raw):
    assert_problem(send(api, raw), 400, "invalid")


def test_a_body_of_another_type_is_refused(api):
    assert_problem(send(api, b"name=x", "application/x-www-form-urlencoded"), 415, "unsupported_media_type")
    assert_problem(send(api, b"x", "text/plain"), 415, "unsupported_media_type")


def test_a_large_body_is_refused(api, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    assert_problem(send(api, b'{"name": "' + b"x" * 2000 + b'"}'), 413, "too_large")


def test_a_missing_field_is_named(api):
    assert_problem(api.post("tokens/", {}), 400, "invalid", "name")


def test_an_unknown_field_is_named_with_the_one_that_was_meant(api):
    problem = assert_problem(api.post("tokens/", {"name": "x", "scop": "read"}), 400, "invalid", "scop")
    assert "“scope”" in problem["errors"]["scop"][0]


def test_several_wrong_fields_are_all_named(api):
    problem = assert_problem(api.post("tokens/", {"scope": "all", "nmae": "x"}), 400, "invalid")
    assert set(problem["errors"]) == {"scope", "nmae", "name"}


def test_an_unknown_parameter_is_named_with_the_one_that_was_meant(api):
    problem = assert_problem(api.get("tokens/?limti=3"), 400, "invalid", "limti")
    assert "“limit”" in problem["errors"]["limti"][0]


def test_a_parameter_of_the_list_is_refused_elsewhere(api):
    assert_problem(api.get(f"tokens/{api.token.pk}/?limit=3"), 400, "invalid", "limit")


def test_a_wrong_filter_value_is_named(administrator):
    assert_problem(Api(administrator).get("users/?role=king"), 400, "invalid", "role")


@pytest.mark.parametrize(
    "path", ["nothing", "tokens/abc/", "tokens/1/x", "tokens/9999999999999999999999/", ""]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_address_that_is_none_is_a_problem(api, method, path):
    assert_problem(api.call(method, path), 404, "not_found")


def test_a_row_that_is_not_there_is_a_problem(api):
    assert_problem(api.get("tokens/999999999/"), 404, "not_found")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS"])
def test_another_method_is_refused_with_the_allowed_ones(api, method):
    response = api.call(method, "tokens/")
    assert_problem(response, 405, "method_not_allowed")
    assert "POST" in response["Allow"]


def test_another_format_is_refused(api):
    assert_problem(api.get("tokens/", Accept="text/csv"), 406, "not_acceptable")


def test_both_spellings_of_an_address_work(api):
    assert api.get("tokens").status_code == 200
    assert api.get("tokens/").status_code == 200
    assert api.get("system/version").status_code == 200


def test_too_many_calls_are_told_to_wait(api, settings):
    settings.KVADMIN_API_RATES = {"read": "2/min", "write": "2/min"}
    assert [api.get("tokens/").status_code for _ in range(2)] == [200, 200]
    response = api.get("tokens/")
    assert_problem(response, 429, "throttled")
    assert 1 <= int(response["Retry-After"]) <= 60


def raising(error):
    def fail(self, request, *args, **kwargs):
        raise error

    return fail


def test_what_an_action_refuses_keeps_its_words(api, monkeypatch):
    for error, status in (
        (Invalid("Port 80 is taken.", code="port_taken", remedy="Use 81.", field="port"), 400),
        (Denied("No.", code="denied", remedy="Ask."), 403),
        (Conflict("Busy.", code="operation_active", remedy="Wait."), 409),
    ):
        monkeypatch.setattr(TokenViewSet, "list", raising(error))
        problem = assert_problem(api.get("tokens/"), status, error.code)
        assert problem["detail"] == error.message
        assert problem["remedy"] == error.remedy
    monkeypatch.setattr(TokenViewSet, "list", raising(Invalid("x", errors={"a": ["1", "2"], "b": ["3"]})))
    assert api.get("tokens/").json()["errors"] == {"a": ["1", "2"], "b": ["3"]}


def test_the_unexpected_says_nothing_of_its_inside(api, monkeypatch, caplog):
    monkeypatch.setattr(TokenViewSet, "list", raising(RuntimeError("password=hunter2")))
    response = api.get("tokens/")
    assert_problem(response, 500, "internal_error")
    assert "hunter2" not in response.content.decode()
    assert "RuntimeError" in caplog.text


def test_an_unreadable_secret_says_what_to_do(api, monkeypatch):
    monkeypatch.setattr(TokenViewSet, "list", raising(SecretUnreadable("Put the old key back.")))
    assert assert_problem(api.get("tokens/"), 500, "secret_unreadable")["detail"] == "Put the old key back."


def test_nested_errors_are_flat_and_say_where():
    flat = dict(problems._flatten({"values": {"port": ["bad"]}, "names": [{}, {"x": ["worse"]}]}))
    assert flat == {"values.port": "bad", "names.1.x": "worse"}


def test_answers_are_not_kept_by_browsers(api):
    assert api.get("tokens/")["Cache-Control"] == "no-store"
