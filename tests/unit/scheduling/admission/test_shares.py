"""The account of a namespace: how much more may be promised on its part of a pool."""

import pytest

from punctual.scheduling.admission.shares import Account, Shares
from punctual.scheduling.model.pool_spec import Tenancy
from punctual.scheduling.placement.calendar import BookedSpan


def account(rate=2.0, at=0.0, *, windows=(), **promised):
    """An account with promises: name=(due, work)."""
    made = Account(rate, at)
    made.resize(rate, [BookedSpan(*window) for window in windows])
    for name, (due, work) in promised.items():
        made.add((due, 0.0, name), work)
    return made


TABLE = {
    "nothing is promised": (account(), 50.0, 100.0),
    "what is due before takes its part": (account(a=(40.0, 30.0)), 50.0, 70.0),
    "what is due at the same time does": (account(a=(50.0, 30.0)), 50.0, 70.0),
    "what is due later leaves all until then": (account(a=(200.0, 30.0)), 50.0, 100.0),
    "a later promise that is tight keeps what it needs": (account(a=(60.0, 110.0)), 50.0, 10.0),
    "of several later ones the tightest counts": (account(a=(60.0, 50.0), b=(70.0, 85.0), c=(200.0, 1.0)), 50.0, 5.0),
    "more is promised than there is": (account(a=(60.0, 130.0)), 50.0, -10.0),
    "its own window takes processors": (account(windows=[(10.0, 20.0, 1)]), 50.0, 90.0),
    "a window that ends later takes its part until then": (account(windows=[(40.0, 80.0, 1)]), 50.0, 90.0),
    "a window that takes more than the part leaves nothing": (account(windows=[(10.0, 20.0, 9)]), 50.0, 80.0),
    "two windows at a time": (account(windows=[(10.0, 20.0, 1), (15.0, 30.0, 1)]), 50.0, 75.0),
}


@pytest.mark.parametrize("name", TABLE)
def test_what_may_still_be_promised(name):
    made, due, spare = TABLE[name]
    assert made.spare(due) == pytest.approx(spare)
    assert made.fits(due, spare)
    assert not made.fits(due, spare + 0.01)
    assert made.fits_at(made.rate, due, spare)
    assert not made.fits_at(made.rate, due, spare + 0.01)
    behind = made.behind_all(25.0)
    if spare >= 0.0:
        assert made.fits(behind, 25.0)


def test_work_that_is_promised_is_on_the_account_for_as_long_as_its_part_of_the_pool_needs():
    made = account(2.0, a=(100.0, 60.0))
    made.advance(10.0)
    assert made.left((100.0, 0.0, "a")) == pytest.approx(40.0)
    assert made.spare(100.0) == pytest.approx(140.0)
    made = account(2.0, a=(100.0, 60.0))
    made.advance(40.0)  # it was done after 30 s, and the part had nothing to do for 10 s
    assert not made.fits(100.0, 121.0)
    assert list(made) == []
    assert made.spare(100.0) == pytest.approx(120.0)


def test_time_takes_as_much_off_the_work_as_off_what_is_possible():
    made = account(2.0, a=(100.0, 190.0))
    for now in (1.0, 20.0, 50.0, 90.0):
        made.advance(now)
        assert made.spare(100.0) == pytest.approx(10.0)


def test_what_was_done_before_a_promise_was_made_was_not_done_of_it():
    made = account(4.0, a=(100.0, 8.0))
    made.advance(1.0)  # half of it is done
    made.add((3.0, 0.0, "b"), 4.0)
    assert made.left((3.0, 0.0, "b")) == pytest.approx(4.0)
    assert made.left((100.0, 0.0, "a")) == pytest.approx(4.0)
    assert made.spare(3.0) == pytest.approx(4.0)


def test_a_promise_that_is_due_is_over_whatever_is_left_of_it():
    made = account(2.0, a=(10.0, 100.0), b=(60.0, 20.0))
    assert made.spare(10.0) == pytest.approx(-80.0)
    assert made.spare(60.0) == pytest.approx(0.0)
    made.advance(10.0)
    assert made.spare(60.0) == pytest.approx(80.0)


def test_what_will_not_be_done_is_taken_off():
    made = account(2.0, a=(100.0, 60.0))
    made.take_off((100.0, 0.0, "a"), 45.0)
    assert made.spare(100.0) == pytest.approx(185.0)
    made.advance(5.0)
    made.take_off((100.0, 0.0, "a"), 45.0)
    made.take_off((100.0, 0.0, "a"), 45.0)
    assert made.spare(100.0) == pytest.approx(190.0)


def test_another_size_counts_from_now_on():
    made = account(2.0, a=(100.0, 60.0))
    made.advance(10.0)
    made.resize(1.0, [])
    assert made.spare(100.0) == pytest.approx(50.0)
    assert account(2.0, a=(100.0, 60.0)).fits_at(1.0, 100.0, 40.0)
    assert not account(2.0, a=(100.0, 60.0)).fits_at(1.0, 100.0, 41.0)


def test_a_window_must_leave_promised_jobs_their_time():
    made = account(2.0, a=(100.0, 180.0))
    assert made.keeps_with(BookedSpan(10.0, 30.0, 1))
    assert not made.keeps_with(BookedSpan(10.0, 31.0, 1))
    assert made.keeps_with(BookedSpan(100.0, 500.0, 2))
    assert made.free_in(10.0, 31.0) == 2.0


def test_the_part_that_is_promised_is_the_most_until_any_due_time_or_in_a_window():
    made = account(2.0, a=(10.0, 4.0), b=(40.0, 40.0))
    assert made.promised(0.0, 8.0) == pytest.approx(44 / 320)
    assert account(2.0, windows=[(10.0, 20.0, 1)]).promised(0.0, 8.0) == pytest.approx(1 / 8)
    assert account().promised(0.0, 8.0) == 0.0


def shares(capacity=8.0, **own):
    made = Shares()
    made.put_in_force(0.0, Tenancy(max_share=0.5, own=tuple(own.items())), capacity)
    return made


def test_a_namespace_with_all_of_the_pool_has_no_account():
    made = shares(admin=1.0)
    assert made.account("admin", 0.0) is None
    assert made.account("team", 0.0).rate == 4.0


def test_an_edit_of_shares_keeps_what_is_promised_on_the_account():
    made = shares()
    made.book("j", made.limit("team", 0.0), deadline=100.0, due=100.0, work=300.0, units=10)
    assert made.put_in_force(0.0, Tenancy(max_share=0.25), 8.0)
    assert made.account("team", 0.0).spare(100.0) == pytest.approx(-100.0)
    made.end("j", undone=5)
    assert made.account("team", 0.0).spare(100.0) == pytest.approx(50.0)
