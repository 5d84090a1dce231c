"""Steering against a simulated period timer: the phase ends on its grid, and is moved for no other reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.period_timer import Agent, PeriodTimer

from punctual.control.phase import (
    FAILURES,
    LEAST_QUOTA,
    LONGEST,
    OFF,
    PAUSE,
    TOLERANCE,
    Grid,
    PhaseControl,
    Read,
    Reading,
    Wait,
    change,
    wrap,
)

PERIODS = st.sampled_from([0.02, 0.1, 0.2, 0.4, 0.8])
PARTS = st.floats(0.0, 1.0, exclude_max=True)
SEEDS = st.integers(0, 2**32)
BEGINS = 7.003


def agent(*, part=0.3, period=0.1, begins=BEGINS, cores=0.3, bound=0.0, seed=0, late=0.0002, asleep=()):
    """Return an agent with a control that knows nothing, and a timer that is off the grid by a part of its period."""
    start = (BEGINS if begins is None else begins) + part * period
    timer = PeriodTimer(start - (start // period) * period, period, list(asleep))
    control = PhaseControl(Grid(begins, period, cores))
    control.aim(control.grid, bound)
    return Agent(timer, control, late=late, seed=seed)


def steered(seconds=25.0, **more):
    """Return an agent that has had time to steer."""
    one = agent(**more)
    one.run(seconds)
    return one


# finding and moving


@given(PARTS, PERIODS, st.floats(0.05, 2.0), SEEDS)
def test_the_phase_is_on_the_grid_after_one_move_or_none(part, period, cores, seed):
    one = steered(part=part, period=period, cores=cores, seed=seed)
    assert abs(one.error) <= TOLERANCE
    assert abs(one.error - one.control.error) <= one.control.phase.half + 1e-9
    assert len(one.moves) <= 1
    assert one.control.moves == len(one.moves)
    assert one.control.failed == 0
    assert one.timer.period == period


@given(PARTS, PERIODS, SEEDS)
def test_what_is_found_holds_within_its_half_and_nothing_is_written_without_a_grid(part, period, seed):
    one = steered(part=part, period=period, seed=seed, begins=None)
    phase = one.control.phase
    assert phase.half <= 0.0003
    assert abs(wrap(one.timer.expiry - phase.at, period)) <= phase.half + 1e-9
    assert one.control.error is None
    assert one.writes == []


@given(st.floats(-0.0003, 0.0003), PERIODS, SEEDS)
def test_a_phase_within_the_tolerance_is_not_moved(off, period, seed):
    one = steered(60.0, part=off / period, period=period, seed=seed)
    assert one.writes == []


def test_a_search_takes_some_forty_readings_and_a_look_two():
    one = agent(part=0.0005)
    one.run(2.0)
    found = one.reads
    assert found <= 45
    one.run(62.0)
    assert one.reads == found + 12


def test_a_new_phase_is_on_the_grid_within_three_seconds():
    one = agent(part=0.4)
    one.run(3.0)
    assert abs(one.error) <= TOLERANCE
    assert one.control.on_grid
    assert one.control.phase is not None


@given(PARTS, PERIODS, SEEDS)
def test_a_takeover_moves_nothing(part, period, seed):
    one = steered(part=part, period=period, seed=seed)
    before, writes = one.timer.expiry, len(one.writes)
    one.control.aim(Grid(None, period, 0.3))
    one.run(40.0)
    found = one.control.phase
    one.control.aim(Grid(found.at - 1000 * period, period, 0.3))
    one.run(80.0)
    new = Agent(one.timer, PhaseControl(Grid(None, period, 0.3)), now=80.0, seed=seed)
    new.run(95.0)
    new.control.aim(Grid(new.control.phase.at + 3 * period, period, 0.3))
    new.run(120.0)
    assert (len(one.writes), new.writes) == (writes, [])
    assert abs(wrap(new.timer.expiry - before, period)) < 1e-6


@given(st.lists(st.floats(-1.0, 1.0), min_size=20, max_size=20), SEEDS)
def test_an_uncertain_clock_moves_nothing_that_may_be_on_the_grid(wobbles, seed):
    bound = 0.004
    one = agent(part=0.0, seed=seed, bound=bound)
    for second, wobble in enumerate(wobbles, 1):
        one.control.aim(Grid(BEGINS + wobble * (bound - 0.0002), 0.1, 0.3), bound)
        one.run(float(second))
    assert one.writes == []


def test_a_clock_that_is_hardly_known_does_not_keep_the_phase_from_being_looked_at():
    one = agent(begins=None, bound=0.3)
    one.run(60.0)
    assert one.control.phase.seen > 45.0
    assert one.control.phase.half <= 0.0001


@given(st.floats(-0.5, 0.5), st.sampled_from([0.002, 0.02, 0.1, 0.8, 1.0]), st.floats(0.05, 4.0))
def test_a_move_keeps_the_share_within_the_limits_of_the_kernel(part, period, cores):
    error = part * period
    d = change(error, period, cores)
    least = max(LEAST_QUOTA, LEAST_QUOTA / cores)
    if d is None:
        return
    assert least <= period + d <= LONGEST
    assert abs(wrap(d + error, period)) <= 1e-9
    if least <= period - abs(error) and period + abs(error) <= LONGEST:
        assert abs(d) <= period / 2


@pytest.mark.parametrize(
    ("error", "period", "cores", "d"),
    [
        (0.0, 0.1, 0.5, 0.0),
        (-0.03, 0.1, 0.5, 0.03),
        (0.03, 0.1, 0.5, -0.03),
        (0.05, 0.1, 0.5, 0.05),
        (0.06, 0.1, 0.5, 0.04),
        (0.03, 0.1, 0.0125, 0.07),  # a period of 70 ms would have a quota below 1 ms
        (-0.3, 0.8, 0.5, -0.5),  # a period of 1.1 s is too long
        (-0.3, 0.9, 0.0015, None),
    ],
)
def test_the_way_around_is_the_shorter_one_that_the_kernel_allows(error, period, cores, d):
    assert change(error, period, cores) == (None if d is None else pytest.approx(d, abs=1e-12))


def test_where_the_kernel_allows_no_move_none_is_tried_and_this_is_told():
    one = agent(part=0.7, period=0.9, cores=0.0015)
    one.run(60.0)
    assert one.writes == []
    assert one.control.failed == FAILURES
    assert one.reads < 120


# what goes wrong


@given(st.lists(st.tuples(st.floats(0.2, 15.0), st.floats(0.2, 20.0)), max_size=6), SEEDS)
def test_an_idle_timer_is_no_fault_and_keeps_its_phase(pauses, seed):
    asleep, at = [], 0.0
    for runs, sleeps in pauses:
        asleep.append((at + runs, at + runs + sleeps))
        at += runs + sleeps
    one = agent(part=0.3, seed=seed, asleep=asleep)
    one.run(at + 40.0)
    assert one.control.failed < FAILURES
    assert abs(one.error) <= TOLERANCE
    moved = len(one.writes)
    one.timer.asleep.append((at + 41.0, at + 51.0))
    one.run(at + 100.0)
    assert len(one.writes) == moved
    assert abs(one.error) <= TOLERANCE


def test_while_the_timer_stands_little_is_read_and_the_last_phase_is_kept():
    one = steered()
    phase, reads = one.control.phase, one.reads
    one.timer.asleep.append((25.0, 3625.0))
    one.run(3625.0)
    assert one.control.phase[:2] == phase[:2]
    assert one.control.phase.seen < 40.0
    assert one.reads - reads <= 3 * 361
    assert (one.control.bad, one.control.failed) == (0, 0)


def test_a_timer_that_never_ran_is_searched_again_much_later():
    one = agent(asleep=[(-1.0, 600.0)])
    one.timer.active = False
    one.run(600.0)
    assert one.control.phase is None
    assert one.writes == []
    assert one.reads <= 61 * 40
    one.run(630.0)
    assert abs(one.error) <= TOLERANCE


@given(st.floats(0.05, 0.95), st.sampled_from([0.02, 0.1, 0.2]), SEEDS)
def test_a_period_that_the_kernel_doubles_moves_nothing(part, period, seed):
    one = steered(part=part, period=period, seed=seed)
    writes = len(one.writes)
    one.timer.period = 2 * period
    one.run(60.0)
    one.control.forget()
    one.run(90.0)
    assert len(one.writes) == writes
    assert one.control.on_grid
    assert one.control.phase.half <= 0.0003
    assert one.control.failed == 0


@given(st.floats(0.001, 1.0), st.floats(0.05, 3.0), st.booleans(), SEEDS)
def test_after_another_program_changed_the_pair_it_steers_again(other, after, told, seed):
    one = steered(seed=seed)
    one.timer.write(other)
    one.timer.run(25.0 + after)
    one.now = 25.0 + after
    one.timer.write(0.1)
    if told:
        one.control.forget()
    one.run(70.0)
    assert abs(one.error) <= 2 * TOLERANCE
    assert one.control.failed <= 1
    if told:
        assert abs(one.error) <= TOLERANCE


def test_after_a_restart_of_the_pod_it_searches_and_steers_again():
    one = steered()
    one.timer = PeriodTimer(25.0777, 0.1, now=25.0)
    one.run(26.0)
    assert one.control.count > 10
    one.run(60.0)
    assert abs(one.error) <= TOLERANCE
    assert one.control.failed == 0


@given(st.floats(0.0, 0.99), PARTS, SEEDS)
def test_an_agent_that_dies_within_a_move_leaves_a_pod_that_the_next_one_steers(dies, part, seed):
    one = agent(part=part, seed=seed)
    one.run(1.4 + dies)
    new = Agent(one.timer, PhaseControl(one.control.grid), now=one.now + 2.0, seed=seed)
    new.timer.run(new.now)
    new.timer.write(0.1)
    new.run(30.0)
    assert abs(new.error) <= TOLERANCE
    assert len(new.moves) <= 1


def test_after_three_failed_moves_it_rests_and_tries_again_much_later():
    one = agent()
    one.timer.stuck = True
    one.run(60.0)
    assert (one.control.failed, len(one.moves)) == (FAILURES, FAILURES)
    assert min(b - a for a, b in zip(one.moves, one.moves[1:], strict=False)) >= PAUSE
    one.run(OFF)
    assert len(one.moves) == FAILURES
    assert one.control.phase.seen > OFF - 20.0
    one.run(OFF + 60.0)
    assert (one.control.failed, len(one.moves)) == (FAILURES + 1, FAILURES + 1)
    one.timer.stuck = False
    one.run(2 * OFF + 120.0)
    assert one.control.failed == 0
    assert abs(one.error) <= TOLERANCE


@given(SEEDS, st.floats(0.0005, 0.15))
def test_an_agent_that_wakes_late_moves_nothing_that_is_on_the_grid(seed, late):
    one = agent(part=0.0, seed=seed, late=late)
    one.run(200.0)
    assert one.control.failed == 0
    assert one.writes == []


@given(SEEDS, PARTS, st.floats(0.0005, 0.004))
def test_an_agent_that_wakes_somewhat_late_still_steers(seed, part, late):
    one = agent(part=part, seed=seed, late=late)
    one.run(120.0)
    assert abs(one.error) <= max(TOLERANCE, late)


# what is asked changes


@given(PARTS, st.floats(0.0, 3.0), PERIODS, PERIODS, SEEDS)
def test_whenever_the_grid_changes_the_pair_and_the_phase_follow(part, when, period, other, seed):
    one = agent(part=part, period=period, seed=seed)
    one.run(when)
    grid = Grid(BEGINS + 0.011, other, 0.3)
    one.control.aim(grid)
    one.run(when + 40.0)
    assert one.timer.period == other
    assert abs(one.error) <= TOLERANCE
    assert one.control.failed <= 1


def test_a_grid_that_goes_elsewhere_is_followed_without_waiting_for_the_next_look():
    one = steered(21.0)
    one.control.aim(Grid(BEGINS + 0.04, 0.1, 0.3))
    one.run(24.0)
    assert abs(one.error) <= TOLERANCE


@pytest.mark.parametrize(
    ("grid", "anew"),
    [
        (Grid(BEGINS + 0.04, 0.1, 0.3), True),
        (Grid(BEGINS + 1000.0, 0.1, 0.31), True),
        (Grid(BEGINS + 0.04, 0.2, 0.3), True),
        (Grid(BEGINS + 100.0005, 0.1, 0.3), False),  # the same one on a clock that is better known
        (Grid(None, 0.1, 0.3), False),
    ],
)
def test_only_a_new_grid_or_pair_ends_the_rest_after_failed_moves(grid, anew):
    one = agent()
    one.timer.stuck = True
    one.run(60.0)
    assert (one.control.failed, len(one.moves)) == (FAILURES, FAILURES)
    one.control.aim(grid)
    one.control.forget()  # as the agent does after a changed pair
    assert one.control.failed == (0 if anew else FAILURES)
    one.timer.stuck = False
    one.timer.write(grid.period)
    one.run(100.0)
    moved = len(one.moves) > FAILURES
    assert moved == anew
    one.control.aim(Grid(BEGINS, *grid[1:]))
    one.run(140.0)
    assert (len(one.moves) > FAILURES) == anew, "what was no new grid stays none when it has its begin again"


def test_a_move_that_could_not_be_written_is_no_move():
    one = agent()
    one.refuses = True
    one.run(60.0)
    assert len(one.refused) > 5
    assert (one.control.moves, one.control.failed, one.writes) == (0, 0, [])
    assert min(b - a for a, b in zip(one.refused, one.refused[1:], strict=False)) >= PAUSE
    one.refuses = False
    one.run(80.0)
    assert (one.control.moves, len(one.moves)) == (1, 1)
    assert abs(one.error) <= TOLERANCE


def test_a_move_that_could_not_be_ended_was_one():
    one = agent()
    one.run(5.0)
    assert one.control.moves == 1
    one.control.unwritten()
    assert one.control.moves == 1


def test_new_grids_all_the_time_move_a_pod_that_does_not_follow_no_more_often_than_any():
    one = agent()
    one.timer.stuck = True
    for second in range(1, 240):
        one.control.aim(Grid(BEGINS + 0.04 * (second // 5 % 2), 0.1, 0.3 + 0.01 * (second // 7 % 2)))
        one.run(float(second))
    assert min(b - a for a, b in zip(one.moves, one.moves[1:], strict=False)) >= PAUSE


def test_two_moves_are_some_seconds_apart_however_often_the_grid_changes():
    one = agent()
    for second in range(1, 120):
        one.control.aim(Grid(BEGINS + (0.04 if second // 3 % 2 else 0.0), 0.1, 0.3))
        one.run(float(second))
    assert len(one.moves) > 5
    assert min(b - a for a, b in zip(one.moves, one.moves[1:], strict=False)) >= PAUSE


def test_a_step_that_comes_early_or_twice_changes_nothing():
    control = PhaseControl(Grid(BEGINS, 0.1, 0.3))
    assert control.step(0.0) == control.step(0.0) == Read()
    wait = control.step(0.0, Reading(0.0, 0.0, 5))
    assert isinstance(wait, Wait)
    assert control.step(wait.until / 2) == wait
    assert control.step(wait.until) == Read()
    assert control.searching


def test_a_reading_that_was_not_asked_for_does_no_harm():
    one = steered()
    assert isinstance(one.control.step(25.0, Reading(25.0, 25.0, one.timer.run(25.0))), Wait)
    assert one.control.phase is not None


@pytest.mark.parametrize(
    ("difference", "wrapped"), [(0.0, 0.0), (0.05, 0.05), (-0.05, 0.05), (0.06, -0.04), (1.23, 0.03), (-7.36, 0.04)]
)
def test_differences_of_phases_are_wrapped(difference, wrapped):
    assert wrap(difference, 0.1) == pytest.approx(wrapped)
