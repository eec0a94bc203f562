"""Hosts over the API: settings, first contact, and what is done on them."""

from __future__ import annotations

import pytest
from django.utils import timezone

from engines.choices import HostState, OperationKind, OperationState
from engines.models import GpuSample, Host, Operation
from engines.probe.notes import gpu_note
from engines.probe.nvidia_smi import GpuReport
from engines.ssh import keys
from kvadmin.models import AuditEvent, IdempotencyRecord
from kvadmin.sentences import pack
from tests.support.api import Api, assert_problem
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory, OperationFactory

NEW = {"name": "h200-a", "kind": "ssh", "address": "10.1.2.3", "username": "ops"}


@pytest.fixture
def api(operator):
    return Api(operator)


@pytest.fixture
def offered():
    pair = keys.generate("host")
    return " ".join(pair.public.split()[:2])


def test_it_adds_a_host_and_shows_the_line_for_authorized_keys(api):
    response = api.post("hosts/", {**NEW, "generate_key": True})
    assert response.status_code == 201, response.content
    body = response.json()
    assert (body["name"], body["state"], body["port"]) == ("h200-a", "new", 22)
    assert body["public_key"].startswith("ssh-ed25519 ")
    assert body["facts"] == {}
    assert AuditEvent.objects.get(verb="host.add").source == "api"


def test_secrets_go_in_and_never_come_out(api):
    pair = keys.generate("mine")
    secret = pair.private.strip().splitlines()[1]
    made = api.post("hosts/", {**NEW, "private_key": pair.private}, **{"Idempotency-Key": "k"})
    assert made.status_code == 201, made.content
    host = made.json()["id"]
    api.patch(f"hosts/{host}/", {"auth": "password", "password": "hunter2hunter2"})
    assert Host.objects.get().password == "hunter2hunter2"
    for path in ("hosts/", f"hosts/{host}/"):
        text = api.get(path).content.decode()
        assert "hunter2" not in text
        assert secret not in text
    kept = str([*AuditEvent.objects.values(), *IdempotencyRecord.objects.values()])
    assert "hunter2" not in kept
    assert secret not in kept


def test_a_refused_secret_is_not_echoed(api):
    response = api.post("hosts/", {**NEW, "private_key": "-----BEGIN NONSENSE hunter2hunter2"})
    assert_problem(response, 400, "invalid", "private_key")
    assert "hunter2" not in response.content.decode()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"address": "a b"}, "address"),
        ({"port": 0}, "port"),
        ({"port": "x"}, "port"),
        ({"kind": "cloud"}, "kind"),
        ({"auth": "none"}, "auth"),
        ({"jump": 999999}, "jump"),
        ({"model_dirs": ["relative"]}, "model_dirs"),
        ({"model_dirs": "x"}, "model_dirs"),
        ({"adress": "10.0.0.1"}, "adress"),
        ({"state": "online"}, "state"),
    ],
)
def test_wrong_input_is_named(api, change, field):
    response = api.post("hosts/", {**NEW, "generate_key": True, **change})
    assert_problem(response, 400, "invalid", field)
    assert not Host.objects.exists()


def test_it_changes_only_what_is_sent(api):
    host = HostFactory(service_address="10.9.9.9", private_key="kept", wheel_dir="/wheels")
    response = api.patch(f"hosts/{host.pk}/", {"wheel_dir": ""})
    assert response.status_code == 200, response.content
    host.refresh_from_db()
    assert (host.wheel_dir, host.service_address, host.private_key) == ("", "10.9.9.9", "kept")


def test_first_contact_is_confirmed_by_fingerprint(api, offered):
    host = HostFactory(state=HostState.CONFIRM, host_key="", offered_key=offered)
    shown = api.get(f"hosts/{host.pk}/").json()
    assert shown["fingerprint"] == ""
    assert shown["offered_fingerprint"].startswith("SHA256:")
    wrong = api.post(f"hosts/{host.pk}/confirm-key/", {"fingerprint": "SHA256:other"})
    assert_problem(wrong, 409, "host_key_moved")
    right = api.post(f"hosts/{host.pk}/confirm-key/", {"fingerprint": shown["offered_fingerprint"]})
    assert right.status_code == 200, right.content
    assert right.json()["fingerprint"] == shown["offered_fingerprint"]
    assert Operation.objects.get().kind == OperationKind.PROBE


@pytest.mark.parametrize(
    ("verb", "body", "kind"),
    [
        ("probe", {}, OperationKind.PROBE),
        ("discover", {}, OperationKind.DISCOVER),
        ("provision", {"version": "0.33.0"}, OperationKind.PROVISION),
    ],
)
def test_each_verb_begins_its_operation(api, verb, body, kind):
    host = HostFactory()
    response = api.post(f"hosts/{host.pk}/{verb}/", body)
    assert response.status_code == 202, response.content
    assert api.get(response["Location"]).json()["kind"] == kind
    assert_problem(api.post(f"hosts/{host.pk}/{verb}/", body), 409, "operation_active")


def test_nothing_is_done_on_a_host_whose_key_changed(api):
    host = HostFactory(state=HostState.BLOCKED)
    assert_problem(api.post(f"hosts/{host.pk}/probe/"), 409, "host_key_changed")


def test_a_host_with_engines_stays(api):
    engine = EngineFactory()
    assert_problem(api.delete(f"hosts/{engine.host.pk}/"), 409, "host_has_engines")
    engine.delete()
    assert api.delete(f"hosts/{engine.host.pk}/").status_code == 204


def test_it_lists_environments(api):
    environment = EnvironmentFactory()
    rows = api.get(f"hosts/{environment.host.pk}/environments/").json()["results"]
    assert [(row["version"], row["usable"]) for row in rows] == [("0.32.0", True)]


def test_it_shows_what_the_last_discovery_found(api):
    host = HostFactory()
    assert api.get(f"hosts/{host.pk}/discovered/").json() == {"found_at": None, "servers": []}
    server = {
        "pid": 4711,
        "ticks": 1,
        "owner": "ops",
        "argv": ["vllm", "serve", "m", "--api-key", "***"],
        "model": "m",
        "served_names": ["m"],
        "address": "0.0.0.0",
        "port": 8000,
        "environment": "",
        "log_path": "",
        "notes": [],
    }
    OperationFactory(
        kind=OperationKind.DISCOVER,
        host=host,
        state=OperationState.SUCCEEDED,
        scratch={"servers": [server]},
        finished_at=timezone.now(),
    )
    found = api.get(f"hosts/{host.pk}/discovered/").json()
    assert found["found_at"]
    assert found["servers"][0]["command"][0] == "vllm"
    assert found["servers"][0]["port"] == 8000
    refused = api.post(f"hosts/{host.pk}/adopt/", {"pid": 1, "name": "found"})
    assert_problem(refused, 409, "not_discovered")


def test_it_filters(api):
    online, new = HostFactory(), HostFactory(state=HostState.NEW)

    def found(query):
        return [row["id"] for row in api.get(f"hosts/?{query}").json()["results"]]

    assert found("") == [online.pk, new.pk]
    assert found("state=new&state=blocked") == [new.pk]
    assert found(f"name={online.name}") == [online.pk]
    assert found("kind=local") == []


def test_a_list_costs_the_same_for_many(api, django_assert_num_queries):
    jump = HostFactory()
    HostFactory.create_batch(4, jump=jump, facts={"gpus": [{}] * 8})
    api.get("hosts/")
    with django_assert_num_queries(2):
        rows = api.get("hosts/").json()["results"]
    assert len(rows) == 5
    assert "facts" not in rows[0]


def test_gpu_samples_come_newest_first_and_by_card(api):
    host = HostFactory()
    for index in (0, 1):
        for used in (100, 200):
            GpuSample.objects.create(host=host, index=index, uuid=f"GPU-{index}", memory_used_mib=used)

    def found(query):
        rows = api.get(f"hosts/{host.pk}/gpu-samples/?{query}").json()["results"]
        return [(row["index"], row["memory_used_mib"]) for row in rows]

    assert found("") == [(1, 200), (1, 100), (0, 200), (0, 100)]
    assert found("index=0&limit=1") == [(0, 200)]
    assert found("since=2999-01-01T00:00:00Z") == []
    assert_problem(api.get(f"hosts/{host.pk}/gpu-samples/?index=x"), 400, "invalid", "index")


def test_the_note_about_gpus_is_told_in_the_reader_s_language(operator):
    note = gpu_note(GpuReport(note="no_gpu"))
    host = HostFactory(facts={"gpus": [], "gpu_note": pack(note)}, facts_at=timezone.now())
    english = Api(operator).get(f"hosts/{host.pk}/", **{"Accept-Language": "en"}).json()
    chinese = Api(operator).get(f"hosts/{host.pk}/", **{"Accept-Language": "zh-hans"}).json()
    assert english["facts"]["gpu_note"] == "This host has no GPU that can be seen."
    assert chinese["facts"]["gpu_note"] not in {"", english["facts"]["gpu_note"]}
