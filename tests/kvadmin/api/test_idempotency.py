"""Idempotency-Key: one change however often it is sent."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from engines.ssh.errors import HostUnreachable
from kvadmin.actions import Conflict
from kvadmin.api import idempotency
from kvadmin.api.tokens import TokenViewSet
from kvadmin.models import AuditEvent, IdempotencyRecord, ManagementToken
from tests.support.api import Api, assert_problem
from tests.support.factories import HostFactory

KEY = {"Idempotency-Key": "b6f0f5f0-1"}


@pytest.fixture
def api(operator):
    return Api(operator)


def made() -> int:
    return ManagementToken.objects.filter(name="robot").count()


def test_a_repeat_gets_the_first_answer(api):
    first = api.post("tokens/", {"name": "robot"}, **KEY)
    again = api.post("tokens/", {"name": "robot"}, **KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert "Idempotency-Replayed" not in first
    assert again["Idempotency-Replayed"] == "true"
    assert again.json() == {**first.json(), "token": None}
    assert made() == 1


def test_the_secret_is_not_kept(api):
    secret = api.post("tokens/", {"name": "robot"}, **KEY).json()["token"]
    record = IdempotencyRecord.objects.get()
    assert secret[-20:] not in str(record.body)


def test_without_the_header_each_call_makes_one(api):
    api.post("tokens/", {"name": "robot"})
    api.post("tokens/", {"name": "robot"})
    assert made() == 2
    assert not IdempotencyRecord.objects.exists()


def test_another_body_with_the_same_key_is_refused(api):
    api.post("tokens/", {"name": "robot"}, **KEY)
    assert_problem(api.post("tokens/", {"name": "robot2"}, **KEY), 422, "idempotency_key_reused")


def test_a_key_belongs_to_its_person(api, administrator):
    api.post("tokens/", {"name": "robot"}, **KEY)
    other = Api(administrator).post("tokens/", {"name": "robot"}, **KEY)
    assert "Idempotency-Replayed" not in other
    assert made() == 2


def test_a_refusal_is_repeated_too(api):
    first = api.post("tokens/", {"name": ""}, **KEY)
    again = api.post("tokens/", {"name": ""}, **KEY)
    assert_problem(first, 400, "invalid", "name")
    assert_problem(again, 400, "invalid", "name")
    assert again["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize("error", [RuntimeError("x"), Conflict("Busy.", code="operation_active")])
def test_what_may_succeed_later_is_tried_again(api, monkeypatch, error):
    def fail(self, request):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(TokenViewSet, "create", fail)
        assert api.post("tokens/", {"name": "robot"}, **KEY).status_code in {409, 500}
    assert not IdempotencyRecord.objects.exists()
    assert api.post("tokens/", {"name": "robot"}, **KEY).status_code == 201


def test_a_change_that_cannot_be_remembered_is_not_made(api, monkeypatch):
    def fail(*args):
        raise RuntimeError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(idempotency, "_plain", fail)
        assert api.post("tokens/", {"name": "robot"}, **KEY).status_code == 500
    assert made() == 0


def test_a_request_still_under_way_is_a_conflict(api, monkeypatch):
    def look(self, request):
        answers.append(api.post("tokens/", {"name": "robot"}, **KEY))
        return create(self, request)

    answers, create = [], TokenViewSet.create
    with monkeypatch.context() as patch:
        patch.setattr(TokenViewSet, "create", look)
        assert api.post("tokens/", {"name": "robot"}, **KEY).status_code == 201
    assert_problem(answers[0], 409, "idempotency_in_progress")
    assert answers[0]["Retry-After"] == "1"


def test_a_request_that_died_does_not_block_its_key(api):
    api.post("tokens/", {"name": "robot"}, **KEY)
    IdempotencyRecord.objects.update(status=None, created_at=timezone.now() - timedelta(minutes=6))
    assert "Idempotency-Replayed" not in api.post("tokens/", {"name": "robot"}, **KEY)


def test_it_forgets_after_a_day(api):
    api.post("tokens/", {"name": "robot"}, **KEY)
    IdempotencyRecord.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert idempotency.trim() == 1
    api.post("tokens/", {"name": "robot"}, **KEY)
    assert made() == 2


@pytest.mark.parametrize("key", ["", "x" * 201, "ключ", "a\tb"])
def test_a_bad_key_is_refused(api, key):
    response = api.post("tokens/", {"name": "robot"}, **{"Idempotency-Key": key})
    assert_problem(response, 400, "idempotency_key_invalid")
    assert made() == 0


@pytest.mark.django_db(transaction=True)
def test_ten_at_once_make_one(operator):
    api = Api(operator)
    start = threading.Barrier(10)
    statuses = []

    def send() -> None:
        start.wait()
        statuses.append(Api.post(api, "tokens/", {"name": "robot"}, **KEY).status_code)
        connection.close()

    threads = [threading.Thread(target=send) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made() == 1
    assert set(statuses) <= {201, 409}
    assert 201 in statuses


@pytest.mark.django_db(transaction=True)
def test_a_slow_look_at_a_host_holds_no_transaction_open(operator, monkeypatch):
    seen = []

    def slow(host):
        seen.append(connection.in_atomic_block)
        raise HostUnreachable("It does not answer.")

    monkeypatch.setattr("engines.actions.contact_host.session_for", slow)
    host = HostFactory()
    answer = Api(operator).post(f"hosts/{host.pk}/contact/", {}, **KEY)
    assert answer.status_code == 200, answer.content
    assert seen == [False]
    assert IdempotencyRecord.objects.get().status == 200
    assert Api(operator).post(f"hosts/{host.pk}/contact/", {}, **KEY)["Idempotency-Replayed"] == "true"
    assert len(seen) == 1


@pytest.mark.django_db(transaction=True)
def test_a_request_that_was_taken_for_dead_changes_nothing(operator, monkeypatch):
    """It was slow on a host, another has its key by now: the later one's change is the one made."""

    def slow(host):
        IdempotencyRecord.objects.all().delete()
        raise HostUnreachable("It does not answer.")

    monkeypatch.setattr("engines.actions.contact_host.session_for", slow)
    host = HostFactory()
    answer = Api(operator).post(f"hosts/{host.pk}/contact/", {}, **KEY)
    assert_problem(answer, 409, "idempotency_in_progress")
    assert not AuditEvent.objects.filter(verb="host.contact").exists()


@pytest.mark.django_db(transaction=True)
def test_a_change_that_cannot_be_remembered_is_not_committed(operator, monkeypatch):
    def fail(*args):
        raise RuntimeError("no room")

    monkeypatch.setattr(idempotency, "_plain", fail)
    assert Api(operator).post("tokens/", {"name": "robot"}, **KEY).status_code == 500
    assert made() == 0
