"""The arithmetic alone, over every small case."""

from __future__ import annotations

import itertools

import pytest

from kvadmin import valkey
from routes.gateway.leases import GRANT
from routes.gateway.shares import SMALL, WINDOW_MS, Month, Slots, Window, WindowAnswer, grant, part

NUMBERS = (0, 1, 2, 3, 9, 10, 11, 48, 49, 50, 51, 99, 100, 1000)


def test_a_grant_is_never_more_than_what_is_left_and_never_less_than_the_need_if_it_is_there():
    for limit, left, need, want, lessees in itertools.product(
        NUMBERS, (-5, *NUMBERS), NUMBERS, NUMBERS, (1, 2, 7)
    ):
        got = grant(limit, left, need, want, lessees)
        assert 0 <= got <= max(0, left)
        assert got >= min(need, max(0, left))
        assert got <= max(need, want)
        if limit < SMALL and lessees > 1:
            assert got == min(need, max(0, left))


def test_shares_shrink_as_the_remainder_does():
    for lessees in (1, 2, 5):
        left, shares = 10_000, []
        while left:
            got = grant(10_000, left, 1, 2500, lessees)
            assert got >= 1
            shares.append(got)
            left -= got
        assert shares == sorted(shares, reverse=True)
        assert shares[-1] == 1
        assert len(shares) < 80 * lessees


def test_valkey_grants_the_same():
    client = valkey.client()
    script = client.register_script(
        GRANT
        + """
        local found = {}
        for i = 1, #ARGV, 5 do
            found[#found + 1] = grant(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]),
                tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]))
        end
        return found"""
    )
    small = (0, 1, 2, 10, 49, 50, 1000)
    cases = list(itertools.product(small, (-5, *small), small, small, (1, 2, 7)))
    for start in range(0, len(cases), 500):
        some = cases[start : start + 500]
        said = script(args=[number for case in some for number in case])
        assert [int(one) for one in said] == [grant(*case) for case in some]


def test_parts_make_up_the_limit():
    for limit, workers in itertools.product((1, 2, 7, 10, 64, 1000), (1, 2, 3, 7, 64)):
        parts = [part(limit, workers, number) for number in range(workers)]
        assert min(parts) >= 1
        # every worker must be able to pass one, so only a limit below the workers is exceeded
        assert sum(parts) == max(limit, workers)
        assert max(parts) - min(parts) <= 1


def answer(
    id: int, granted: int, mine: int, left: int, *, same: bool, ahead: int | None = None
) -> WindowAnswer:
    return WindowAnswer(id, granted, mine, left, same, ahead)


@pytest.fixture
def window() -> Window:
    """100 a minute; 40 leased at second 1000."""
    one = Window(100, left=100)
    one.leased_more(answer(1_000_000, 40, 40, 60, same=False), 1000.0, 1_000_000, keep=True)
    return one


def test_a_window_ends_after_a_minute(window):
    assert (window.id, window.ends, window.available) == (1_000_000, 1060.0, 40)
    window.take(1)
    window.roll(1059.9)
    assert window.available == 39
    window.roll(1060.0)
    assert (window.available, window.used, window.id) == (0, 0, 0)


def test_the_share_of_the_next_window_takes_over(window):
    window.leased_more(answer(1_000_000, 0, 40, 60, same=True, ahead=25), 1058.0, 1_058_000, keep=True)
    window.take(30)
    window.roll(1060.5)
    assert (window.id, window.ends, window.available, window.used) == (1_000_000 + WINDOW_MS, 1120.0, 25, 0)
    # but not a minute later, when that window is over too
    window.ahead = 25
    window.roll(1181.0)
    assert window.available == 0


def test_what_is_told_is_what_was_used_and_what_is_held(window):
    window.take(10)
    assert window.tell() == 40
    window.give_back()
    assert window.tell() == 10


def test_an_answer_larger_than_estimated_is_a_debt_that_is_told_once(window):
    window.take(40)
    window.settle(10, 35, window.id)
    assert window.available == -25
    assert window.tell() == 65
    assert window.tell() == 65
    window.leased_more(answer(1_000_000, 5, 70, 30, same=True), 1010.0, 1_010_000, keep=True)
    assert window.available == 5


def test_a_reservation_of_an_earlier_window_gives_nothing_back_to_this_one(window):
    window.take(20)
    old = window.id
    window.roll(1060.0)
    window.leased_more(answer(1_060_000, 10, 10, 90, same=False), 1060.0, 1_060_000, keep=True)
    window.settle(20, 5, old)
    assert window.available == 10
    # what is more than was reserved has to count somewhere
    window.settle(20, 23, old)
    assert (window.available, window.used) == (7, 3)


def test_a_window_that_began_at_the_server_replaces_the_old_one(window):
    window.take(10)
    window.leased_more(answer(1_060_000, 7, 32, 50, same=False), 1059.99, 1_060_000, keep=False)
    assert (window.available, window.used, window.share) == (32, 0, 0)


def test_more_is_asked_for_when_half_is_gone(window):
    window.take(19)
    assert not window.low
    window.take(2)
    assert window.low
    window.left = 0
    assert not window.low


def test_alone_a_window_goes_on_with_what_was_used(window):
    window.take(30)
    window.alone(1010.0, 50, 1_010_000)
    assert (window.available, window.used) == (20, 30)
    window.alone(1060.0, 50, 1_060_000)
    assert (window.available, window.used, window.id) == (50, 0, 1_060_000)


def test_slots_in_use_are_never_given_back():
    slots = Slots(10, held=6, in_use=4)
    assert slots.idle == 2
    assert slots.give_back()
    assert slots.held == 4
    assert not slots.give_back()


def test_a_month_tells_what_was_spent_and_what_is_held():
    month = Month(1000, "202605", available=500)
    month.take(100)
    month.take(50)
    assert (month.held, month.spent) == (500, 0)
    month.settle(100, 30)
    assert (month.held, month.spent) == (470, 30)
    month.settle(50, 90)
    assert (month.held, month.spent) == (380, 120)
    month.give_back()
    assert (month.held, month.spent) == (0, 120)


def test_what_is_in_flight_when_a_month_turns_counts_in_the_new_one():
    month = Month(1000, "202605", available=500, spent=200)
    month.take(100)
    month.turn("202606")
    assert (month.held, month.spent) == (100, 0)
    month.settle(100, 60)
    assert (month.available, month.spent, month.reserved) == (40, 60, 0)
