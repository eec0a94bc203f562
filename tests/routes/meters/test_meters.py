from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from routes.gateway import meters as module
from routes.gateway.meters import BOUNDS, MAX_ROUTES, Meters
from tests.routes.usage.support import usage


def samples(page: bytes) -> dict[tuple, float]:
    """Read by Prometheus's own parser: {(name, labels): value}."""
    return {
        (sample.name.removeprefix("kvadmin_gateway_"), *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def request(**values) -> tuple:
    return ("requests_total", *sorted({"route": "qwen3-8b", "status": "200", "layer": "", **values}.items()))


def test_requests_tokens_and_times_are_counted(tmp_path):
    meters = Meters(tmp_path)
    meters.observe(
        usage(total_s=0.2, first_byte_s=0.03, prompt_tokens=10, cached_tokens=4, completion_tokens=7)
    )
    meters.observe(usage(total_s=400, prompt_tokens=1))
    meters.observe(usage(status=429, error_layer="gateway", total_s=0.001))
    found = samples(meters.page())
    assert found[request()] == 2
    assert found[request(status="429", layer="gateway")] == 1
    assert found["tokens_total", ("kind", "prompt"), ("route", "qwen3-8b")] == 11
    assert found["tokens_total", ("kind", "cached"), ("route", "qwen3-8b")] == 4
    assert found["tokens_total", ("kind", "completion"), ("route", "qwen3-8b")] == 7
    total = {dict(key[1:])["le"]: value for key, value in found.items() if key[0] == "request_seconds_bucket"}
    assert len(total) == len(BOUNDS) + 1
    assert (total["0.1"], total["0.25"], total["300"], total["+Inf"]) == (0, 1, 1, 2)
    assert found["request_seconds_count", ("route", "qwen3-8b")] == 2
    assert found["request_seconds_sum", ("route", "qwen3-8b")] == pytest.approx(400.2)
    assert found["first_byte_seconds_count", ("route", "qwen3-8b")] == 1
    meters.close()


def test_a_gateway_is_all_its_workers(tmp_path):
    one, other = Meters(tmp_path), Meters(tmp_path)
    for n in range(3):
        one.observe(usage())
        other.observe(usage(model=f"only-there-{n}"))
    other.observe(usage())
    other.take_sample()
    for meters in (one, other):
        found = samples(meters.page())
        assert found[request()] == 4
        assert found["request_seconds_count", ("route", "qwen3-8b")] == 4
        assert found["request_seconds_count", ("route", "only-there-2")] == 1
        assert found[("workers",)] == 2
    one.close()
    other.close()


def test_counts_go_on_when_a_worker_is_gone_and_comes_back(tmp_path):
    def state():
        yield "requests_in_flight", {}, "sum", 5
        yield "limit_waits_total", {}, "counter", 2
        yield "snapshot_workers", {"state": "current"}, "sum", 1

    gone, stays = Meters(tmp_path, state), Meters(tmp_path)
    gone.observe(usage())
    gone.take_sample()
    found = samples(stays.page())
    assert (found[("requests_in_flight",)], found[("limit_waits_total",)]) == (5, 2)
    gone.close()
    found = samples(stays.page())
    assert found[request()] == 1
    assert found[("limit_waits_total",)] == 2
    assert ("requests_in_flight",) not in found
    back = Meters(tmp_path, state)
    assert back.slot.number == 0
    back.observe(usage())
    back.take_sample()
    found = samples(stays.page())
    assert found[request()] == 2
    assert found[("limit_waits_total",)] == 4
    assert found[("requests_in_flight",)] == 5
    back.close()
    stays.close()


def test_a_state_that_is_over_falls_to_nothing(tmp_path):
    now = "current"
    meters = Meters(tmp_path, lambda: [("snapshot_workers", {"state": now}, "sum", 1)])
    meters.take_sample()
    now = "stale"
    found = samples(meters.page())
    assert found["snapshot_workers", ("state", "stale")] == 1
    assert found["snapshot_workers", ("state", "current")] == 0
    meters.close()


def test_the_least_and_the_most_of_the_workers(tmp_path):
    one = Meters(tmp_path, lambda: [("limits_shared", {}, "min", 1), ("spool_lag_seconds", {}, "max", 2.5)])
    other = Meters(tmp_path, lambda: [("limits_shared", {}, "min", 0), ("spool_lag_seconds", {}, "max", 1)])
    one.take_sample()
    found = samples(other.page())
    assert (found[("limits_shared",)], found[("spool_lag_seconds",)]) == (0, 2.5)
    one.close()
    other.close()


def test_labels_are_bounded(tmp_path):
    meters = Meters(tmp_path)
    for n in range(MAX_ROUTES + 50):
        meters.observe(usage(model=f"route-{n}"))
        meters.observe(
            usage(model=f"what a caller wrote {n}", route_id=None, status=404, error_layer="gateway")
        )
    for n in range(2000):
        meters.observe(usage(status=n, error_layer=f"layer{n}"))
    found = samples(meters.page())
    assert len({dict(key[1:]).get("route") for key in found}) <= MAX_ROUTES + 2
    assert not any("caller" in str(key) for key in found)
    assert sum(value for key, value in found.items() if key[0] == "requests_total") == 2 * 250 + 2000
    meters.close()


def test_no_room_loses_counts_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PLACES", 64)
    meters = Meters(tmp_path)
    for n in range(10):
        meters.observe(usage(model=f"route-{n}"))
    assert samples(meters.page())
    meters.close()


def test_names_torn_by_a_crash_are_left_out(tmp_path):
    meters = Meters(tmp_path)
    meters.observe(usage())
    meters.close()
    names = tmp_path / "0000" / "names"
    whole = names.read_bytes()
    names.write_bytes(whole[:-5])
    again = Meters(tmp_path)
    again.observe(usage())
    assert samples(again.page())["tokens_total", ("kind", "prompt"), ("route", "qwen3-8b")] == 0
    again.close()


def test_text_of_a_route_is_escaped(tmp_path):
    meters = Meters(tmp_path)
    meters.observe(usage(model='a"b\\c'))
    assert samples(meters.page())[request(route='a"b\\c')] == 1
    meters.close()
