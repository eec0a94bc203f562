"""Which target is taken, who is passed over, and what brings one back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from routes.gateway.choose import candidates, choose
from routes.gateway.health import FAILURES, FIRST_S, LONGEST_S, Health
from routes.gateway.paths import find_path
from routes.gateway.records import RouteRecord, TargetRecord

CHAT = find_path(b"/v1/chat/completions").path


@dataclass
class Known:
    record: TargetRecord
    in_flight: int = 0
    health: Health = field(default_factory=Health)
    seed: int = 0


def known(*weights: int, **fields) -> list[Known]:
    return [
        Known(TargetRecord(n, 1, f"http://{n}", "m", weight=weight, **fields), seed=n * 7919)
        for n, weight in enumerate(weights, 1)
    ]


def route(policy: str = "least_busy") -> RouteRecord:
    return RouteRecord(1, "m", policy=policy)


def test_equals_take_turns_by_weight():
    targets = known(1, 1, 2)
    taken = Counter()
    for turn in range(400):
        found = choose(route(), targets, 0, turn)
        taken[found.record.id] += 1
    assert taken == {1: 100, 2: 100, 3: 200}


def test_the_least_busy_for_its_weight_is_taken():
    one, two, big = targets = known(1, 1, 4)
    one.in_flight, two.in_flight, big.in_flight = 2, 1, 3
    assert choose(route(), targets, 0, 0) is big
    big.in_flight = 8
    assert choose(route(), targets, 0, 5) is two


def test_load_spreads_by_weight():
    targets = known(1, 2, 1)
    for turn in range(400):
        choose(route(), targets, 0, turn).in_flight += 1
    assert [target.in_flight for target in targets] == [100, 200, 100]


def test_equal_beginnings_meet_and_no_engine_drowns():
    targets = known(1, 1, 1, 1)
    first = choose(route("prefix_affinity"), targets, 42, 0)
    for _ in range(3):
        assert choose(route("prefix_affinity"), targets, 42, 0) is first
    for _ in range(100):
        choose(route("prefix_affinity"), targets, 42, 0).in_flight += 1
    assert max(target.in_flight for target in targets) <= 1.25 * 100 / 4 + 2
    assert first.in_flight == max(target.in_flight for target in targets)


def test_different_beginnings_spread():
    targets = known(1, 1, 1, 1)
    taken = Counter(
        choose(route("prefix_affinity"), targets, mark * 2654435761 % 2**32, 0).record.id
        for mark in range(1000)
    )
    assert all(150 < count < 350 for count in taken.values())


def test_a_target_that_leaves_moves_only_its_own_beginnings():
    targets = known(1, 1, 1, 1)
    marks = [mark * 2654435761 % 2**32 for mark in range(500)]
    before = {mark: choose(route("prefix_affinity"), targets, mark, 0).record.id for mark in marks}
    after = {mark: choose(route("prefix_affinity"), targets[:-1], mark, 0).record.id for mark in marks}
    assert all(after[mark] == before[mark] for mark in marks if before[mark] != 4)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50)), min_size=1, max_size=8),
    st.integers(0, 2**32 - 1),
)
def test_one_is_always_found(given_targets, mark):
    targets = known(*(weight for weight, _ in given_targets))
    for target, (_, load) in zip(targets, given_targets, strict=True):
        target.in_flight = load
    for policy in ("least_busy", "prefix_affinity"):
        assert choose(route(policy), targets, mark, mark) in targets


def test_those_that_may_not_are_passed_over():
    targets = known(1) + known(1, state="draining") + known(1, state="down") + known(0)
    targets += known(1)
    targets[-1].health.failed(100.0, "refused", at_once=True)
    assert candidates(route(), targets, CHAT, set(), 100.1) == targets[:1]
    assert candidates(route(), targets, CHAT, {1}, 100.1) == []
    assert targets[-1] in candidates(route(), targets, CHAT, set(), 100.0 + FIRST_S)


def test_a_target_is_ejected_after_failures_in_a_row():
    health = Health()
    for _ in range(FAILURES - 1):
        assert not health.failed(0.0, "500", at_once=False)
    health.answered()
    for _ in range(FAILURES - 1):
        assert not health.failed(0.0, "500", at_once=False)
    assert health.failed(0.0, "500", at_once=False)
    assert health.state(0.5) == "open"
    assert not health.may_take(0.5)


def test_one_probe_at_a_time_and_pauses_that_grow():
    health = Health()
    health.failed(0.0, "refused", at_once=True)
    now, pause = 0.0, FIRST_S
    for _ in range(8):
        now = health.opens_at
        assert health.state(now) == "half_open"
        assert health.may_take(now)
        assert health.take(now)
        assert health.take(now) is None
        assert not health.may_take(now)
        assert health.failed(now, "refused", at_once=True)
        pause = min(pause * 2, LONGEST_S)
        assert health.opens_at == now + pause
    now = health.opens_at
    assert health.take(now)
    assert health.answered()
    assert health.state(now) == "closed"
    assert health.may_take(now)


def test_what_was_on_its_way_when_it_was_ejected_does_not_lengthen_the_pause():
    health = Health()
    health.failed(0.0, "refused", at_once=True)
    until = health.opens_at
    for _ in range(10):
        health.failed(0.1, "refused", at_once=True)
    assert health.opens_at == until


def test_a_probe_whose_caller_left_makes_room_for_another():
    health = Health()
    health.failed(0.0, "refused", at_once=True)
    probe = health.take(health.opens_at)
    assert not health.may_take(health.opens_at)
    health.undecided(probe)
    assert health.may_take(health.opens_at)


def test_a_probe_that_ended_before_does_not_end_the_next():
    health = Health()
    health.failed(0.0, "refused", at_once=True)
    first = health.take(health.opens_at)
    assert health.answered()
    health.failed(10.0, "refused", at_once=True)
    assert health.take(health.opens_at)
    # the first one's stream ends only now
    health.undecided(first)
    assert not health.may_take(health.opens_at)


def test_an_ordinary_request_is_no_probe():
    health = Health()
    assert health.take(0.0) == 0
    health.failed(0.0, "refused", at_once=True)
    assert health.take(0.0) is None
