from __future__ import annotations

import itertools

import pytest

from engines.choices import EngineState
from engines.launch.decide import AT_REST, Act, Change, Seen, decide, failures_in_a_row

EVERY = list(
    itertools.product(
        [state.value for state in EngineState],
        [Seen(*values) for values in itertools.product((True, False), (True, False), (True, False), (0, 2))],
        (True, False),
        (True, False),
        (True, False),
    )
)


def decision(observed, seen, ended, was_ready, stop_asked):
    return decide(observed, seen=seen, ended=ended, was_ready=was_ready, stop_asked=stop_asked)


def test_a_living_leader_is_ended_only_when_its_start_was_given_up_or_a_stop_was_asked():
    for case in EVERY:
        _observed, seen, ended, _was_ready, stop_asked = case
        if seen.same_boot and seen.leader and not ended and not stop_asked:
            assert decision(*case) in {Act.ASK, Act.RESUME}, case


def test_nothing_is_declared_ended_while_a_process_lives():
    for case in EVERY:
        _observed, seen, *_rest = case
        if seen.same_boot and (seen.leader or seen.others or seen.wrapper):
            assert decision(*case) not in {Act.ENDED, Act.CLOSE, Act.REBOOTED}, case


def test_an_engine_at_rest_with_nothing_alive_stays_at_rest():
    for case in EVERY:
        observed, seen, *_rest = case
        if observed in AT_REST and not (seen.leader or seen.others or seen.wrapper):
            assert decision(*case) in {Act.NOTHING, Act.CLOSE}, case


@pytest.mark.parametrize("observed", ["starting", "loading", "ready", "draining", "stopping", "unreachable"])
def test_another_boot_id_means_the_host_was_restarted(observed):
    seen = Seen(same_boot=False)
    assert decision(observed, seen, False, True, False) == Act.REBOOTED


@pytest.mark.parametrize("observed", ["starting", "loading", "ready", "draining", "stopping", "unreachable"])
def test_workers_without_their_leader_are_ended(observed):
    assert decision(observed, Seen(others=2), False, True, False) == Act.END_SURVIVORS


def test_a_process_found_running_is_taken_up_again():
    for observed in ("failed", "stopped", "loading", "starting"):
        assert decision(observed, Seen(leader=True), False, False, False) == Act.RESUME
    assert decision("unreachable", Seen(leader=True), False, True, False) == Act.ASK


def test_crashes_are_counted_since_the_engine_last_held():
    changes = [
        Change("failed", 1000, crash=True),
        Change("ready", 990),
        Change("starting", 980),
        Change("failed", 970, crash=True),
        Change("ready", 100),
        Change("failed", 50, crash=True),
    ]
    assert failures_in_a_row(changes, 1010) == 2


def test_a_persons_start_forgets_earlier_crashes():
    changes = [
        Change("failed", 1000, crash=True),
        Change("starting", 990, by_person=True),
        Change("failed", 980, crash=True),
    ]
    assert failures_in_a_row(changes, 1010) == 1


def test_an_adopted_engine_is_never_taken_up_as_a_start():
    for observed, seen, _ended, was_ready, _stop_asked in EVERY:
        if seen.same_boot and seen.leader:
            act = decide(
                observed, seen=seen, ended=False, was_ready=was_ready, stop_asked=False, adopted=True
            )
            assert act == Act.ASK, (observed, seen)
