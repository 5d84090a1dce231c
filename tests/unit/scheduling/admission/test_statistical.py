"""Statistical admission: the arithmetic of algorithm 12, whom the dispatcher serves, and the controller's periods."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from world import Worker, World, job

from punctual import reasons
from punctual.control.miss_ratio import LOW, MissCount, MissRatio
from punctual.scheduling.admission.statistical import LEAST, PARTS, SLOWER, WORTH, StatisticalQueue
from punctual.scheduling.model.discipline import Discipline, Order
from punctual.scheduling.model.events import ReservationApplied
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost

PLACES = [Place(f"n{i}", 0) for i in range(4)]


def demand(units: int, due: float, uid: str = "j", **cost: float) -> Demand:
    return Demand(order=Order(due, 0.0, uid), ranges=Ranges.of((0, units)), cost=Cost(**{"chi": 1.0, **cost}), due=due)


def line(*waiting: Demand, ends: tuple[float, ...] = (0.0,) * 4, bound: float = 1.0, **chosen) -> StatisticalQueue:
    return StatisticalQueue.of(0.0, PLACES, Timeline(np.array(ends), Discipline(**chosen)), waiting, bound=bound)


def test_utilization_is_the_time_on_all_processors_over_the_time_left():
    assert line().room(0.0, demand(40, 20.0)).highest == pytest.approx(10.0 / 20.0)
    # what runs is spread over all: (8 + 4)/4 s later
    assert line(ends=(8.0, 4.0, 0.0, 0.0)).room(0.0, demand(40, 20.0)).highest == pytest.approx(10.0 / 17.0)
    # one port: (1 - beta)/(1 - beta^4) of the work
    per_unit, beta = 2.0, 0.5
    seconds = 40 * per_unit * (1 - beta) / (1 - beta**4)
    asked = demand(40, 90.0, tau=1.0)
    assert line(network="OnePort").room(0.0, asked).highest == pytest.approx(seconds / 90.0)


def test_each_that_waits_is_looked_at_behind_those_before_it():
    waiting = line(demand(40, 30.0, "late"))
    room = waiting.room(0.0, demand(40, 20.0, "early"))
    assert room.highest == pytest.approx(max(10.0 / 20.0, 10.0 / 20.0))
    assert line(demand(40, 11.0, "before"), bound=0.95).room(0.0, demand(4, 11.5, "new")).highest > 0.9
    assert not line(demand(40, 10.0, "before")).room(0.0, demand(4, 10.0, "new")).fits, "no time is left for it"


@pytest.mark.parametrize(
    ("now", "theta_cp", "size"),
    [
        (0.0, 0.0, 160.0 / PARTS),  # one part of the time left
        (100.0, 0.0, LEAST * 100 / 4),  # that would be less than the least
        (159.0, 0.0, LEAST * 100 / 4),
        (0.0, 1.0, WORTH * 1.0),  # so long that its set-up is worth it
        (0.0, 8.0, (160.0 - 8.0) / SLOWER),  # and no longer than ends in time though it takes longer
        (159.0, 8.0, LEAST * 100 / 4),
    ],
)
def test_how_much_a_free_processor_gets(now, theta_cp, size):
    assert line(demand(100, 160.0, theta_cp=theta_cp)).next(now, PLACES[0]).piece == (0, int(size))


def test_a_chunk_is_never_empty_and_never_more_than_is_left():
    assert line(demand(3, 40.0)).next(0.0, PLACES[0]).piece == (0, 2)
    assert line(demand(3, 4.0)).next(0.0, PLACES[0]).piece == (0, 1)
    assert line(demand(3, 400.0)).next(0.0, PLACES[0]).piece == (0, 3)


@pytest.mark.parametrize(("units", "size"), [(15, 10), (14, 14), (11, 11), (10, 10)])
def test_what_is_left_behind_a_chunk_goes_with_it_where_it_is_less_than_the_least_chunk(units, size):
    waiting = line(replace(demand(units, 160.0), least_chunk=5))
    assert waiting.next(0.0, PLACES[0]).piece == (0, size)


def test_who_is_late_goes_on_behind_those_who_are_not():
    waiting = line(demand(10, 5.0, "late"), demand(10, 50.0, "in time"))
    assert waiting.next(0.0, PLACES[0]).uid == "late"
    assert waiting.next(6.0, PLACES[0]).uid == "in time"


def controller(found=None, *, now=0.0, enough=1):
    made = MissRatio.going_on(now, found, set_point=0.1, period=10.0)
    made.enough = enough
    return made


def test_a_job_is_counted_at_its_end_or_at_its_deadline_whichever_comes_first():
    miss = controller()
    for uid, deadline in (("a", 3.0), ("b", 4.0), ("c", 12.0), ("d", 5.0)):
        miss.accept(uid, deadline)
    miss.ended(3.0, "a")
    miss.leave("d")
    assert miss.look(9.0) == ["b"]
    assert (miss.due, miss.missed, miss.last) == (2, 1, None)
    miss.ended(9.5, "b")
    before = miss.bound
    assert miss.look(10.0) == []
    assert (miss.last.time, miss.last.miss_ratio) == (10.0, 0.5)
    assert miss.bound < before, "more missed than may"
    miss.ended(11.0, "c")
    assert miss.count == MissCount(bound=miss.bound, ratio=0.5, due=1, missed=0, until=11.0)


def test_a_period_in_which_nobody_came_to_an_end_changes_nothing():
    miss = controller()
    before = miss.count
    miss.look(35.0)
    assert (miss.last.time, miss.end) == (30.0, 40.0)
    assert miss.count == before


def test_a_few_do_not_move_the_bound_but_go_on_into_the_next_period():
    miss = controller(enough=3)
    for uid, deadline in (("a", 3.0), ("b", 4.0), ("c", 12.0)):
        miss.accept(uid, deadline)
    miss.look(10.0)
    assert (miss.bound, miss.due) == (1.0, 2)
    miss.look(20.0)
    assert miss.bound < 1.0, "all of three"
    assert miss.due == 0


def test_a_door_that_let_nobody_in_opens_again():
    miss = controller(MissCount(bound=LOW, ratio=1.0))
    miss.look(10.0)
    assert miss.bound == LOW, "nobody asked"
    miss.turned_away = True
    miss.look(20.0)
    opened = miss.bound
    assert opened > LOW
    miss.turned_away = True
    miss.accept("a", 100.0)
    miss.look(30.0)
    assert miss.bound == opened, "somebody is in, and will tell"


@example([(1.0, 1.0), (9.0, 10.0), *[(1.0, 1.0)] * 5, (4.0, 5.0)], 12)  # one is due just when another was counted
@given(st.lists(st.tuples(st.floats(0.1, 20.0), st.floats(0.1, 30.0)), max_size=60), st.integers(0, 60))
def test_a_new_controller_goes_on_as_the_old_one_would_have(fates, when):
    """Each job is let in a second after the one before, has a deadline (s later), and ends (s later)."""

    def run(handed_over):
        miss, ends = controller(enough=2), {}
        for t in range(120):
            if t == handed_over:
                still = dict(miss.open)
                miss = controller(miss.count, now=t, enough=2)
                for uid, deadline in still.items():
                    miss.accept(uid, deadline)
            for uid in [u for u, end in ends.items() if end <= t]:
                del ends[uid]
                miss.ended(t, uid)
            miss.look(t)
            if t < len(fates):
                deadline, end = fates[t]
                miss.accept(str(t), t + deadline)
                ends[str(t)] = t + end
        return miss.count

    assert run(when) == run(None)


def test_a_pool_lets_in_by_the_bound_and_says_so():
    w = World()
    w.edit_pool(replace(w.spec, bound=0.5, generation=2))
    w.node("n1", 2.0)
    w.workers = lambda _uid, _chunk: Worker(pace=1.5)  # slower than declared: nobody's promise is given up for it
    w.tick()
    w.apply(job("in", units=20, deadline=60.0))
    w.apply(job("out", units=40, deadline=30.0))
    w.tick()
    assert w.state("in") == ("True", reasons.ADMITTED_STATISTICALLY)
    assert w.state("out")[0] == "False"
    assert w.records["out"].admitted.message == (
        "with this job, a job would need 0.786 of the pool until its deadline; the bound is 0.5, with 1 job waiting; "
        "3 more processors would do, for 28s from now"
    )
    w.apply(job("no", units=1, deadline=8.0, theta_cp=0.0))
    w.run(1)
    assert w.records["no"].admitted.message == (
        "running chunks (for 22s at most) and earlier deadlines would leave a job no time at all; the bound is 0.5, "
        "with 0 jobs waiting; 3 more processors would do, for 5.8s from now"
    )
    w.run_until(lambda w: w.done("in"))
    assert w.met("in")


def loose(w, **more):
    w.edit_pool(replace(w.spec, miss_set_point=0.1, sample_period=30.0, generation=w.spec.generation + 1, **more))


def statistical(cpu=2.0, pace=1.0):
    """A pool that lets in statistically; a unit takes ``pace`` times what is declared."""
    w = World()
    loose(w)
    w.node("n1", cpu)
    w.workers = lambda _uid, _chunk: Worker(pace=pace)
    w.tick()
    return w


def behind():
    """Two jobs that fitted, and that at 20 s no plan would keep, as units take longer than declared."""
    w = statistical(pace=1.5)
    for uid in ("a", "b"):
        w.apply(job(uid, units=56, deadline=62.0, theta_cp=0.0))
    w.tick()
    assert [w.state(uid) for uid in ("a", "b")] == [("True", reasons.ADMITTED_STATISTICALLY)] * 2
    return w.run(20.0)


def test_a_new_leader_goes_on_with_bound_and_counts_and_gives_nobody_up():
    w = behind()
    w.crash()
    w.run_until(lambda w: w.pool_record.miss.due == 2)
    assert w.pool_record.miss == MissCount(bound=1.0, due=2, missed=1, until=w.now)
    assert w.now == pytest.approx(62.0, abs=1.0)
    assert [line.split()[1:] for line in w.log if "on_track=False" in line] == [["b", "on_track=False", "Late"]]
    before = w.pool_record.miss
    w.crash()
    w.tick()
    w.run_until(lambda w: w.done("b"))
    assert w.pool_record.miss == before, "nobody is counted twice"


def test_who_is_late_is_told_so_goes_on_or_stops():
    w = statistical(pace=3.0)
    w.apply(job("on", units=30, deadline=40.0))
    w.apply(job("stop", units=30, deadline=41.0, on_miss="Stop"))
    w.run_until(lambda w: w.done("stop"))
    assert w.now <= 42.0
    assert w.records["stop"].failed_condition.reason == reasons.LATE
    assert w.records["on"].on_track[:2] == ("False", reasons.LATE)
    w.run_until(lambda w: w.done("on"))
    assert w.records["on"].completed_condition.reason == reasons.DEADLINE_MISSED


def test_who_is_withdrawn_is_not_counted():
    w = statistical()
    for uid in ("deleted", "suspended", "failed", "done"):
        w.apply(job(uid, units=4, deadline=60.0, chunk_retries=0))
    w.workers = lambda uid, _chunk: Worker(exit_code=int(uid == "failed"))
    w.tick()
    w.delete("deleted")
    w.apply(replace(w.jobs["suspended"], suspend=True, generation=2))
    w.run_until(lambda w: w.done("failed") and w.done("done"))
    w.run(70.0)
    assert (w.pool_record.miss.due, w.pool_record.miss.missed) == (1, 0)


def test_another_deadline_is_tested_by_the_bound():
    w = behind()
    w.apply(replace(w.jobs["b"], deadline=40.0, generation=2))
    w.tick()
    assert w.records["b"].spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    w.apply(replace(w.jobs["b"], deadline=120.0, generation=3))
    w.tick()
    assert w.records["b"].spec_applied[:2] == ("True", reasons.APPLIED)
    w.run_until(lambda w: w.done("a") and w.done("b"))
    assert (w.pool_record.miss.due, w.pool_record.miss.missed) == (2, 0)


def test_a_pool_of_certain_promises_does_not_become_a_statistical_one_under_them():
    w = World()
    w.node("n1", 2.0)
    w.apply(job("sure", units=20, deadline=60.0))
    w.tick()
    assert w.state("sure") == ("True", reasons.FEASIBLE)
    loose(w)
    w.tick()
    assert w.pool_record.spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    assert "no longer be guaranteed" in w.pool_record.spec_applied.message
    w.run_until(lambda w: w.done("sure"))
    loose(w)
    w.tick()
    assert w.pool_record.spec_applied.status == "True"
    assert w.pool_record.miss.bound == 1.0


def test_a_statistical_pool_is_edited_whether_or_not_a_plan_would_keep_its_jobs():
    w = behind()
    loose(w, margin=3.0)
    w.tick()
    assert w.pool_record.spec_applied.status == "True"
    w.run(44.0)
    w.edit_pool(replace(w.spec, miss_set_point=None, generation=9))
    w.tick()
    assert w.pool_record.spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    w.run_until(lambda w: w.done("a") and w.done("b"))
    w.edit_pool(replace(w.spec, generation=10))
    w.tick()
    assert w.pool_record.spec_applied.status == "True"
    assert w.pool_record.miss is None
    w.apply(job("sure", units=20, deadline=w.now + 60.0, arrival=w.now))
    w.tick()
    assert w.state("sure") == ("True", reasons.FEASIBLE)


def test_fast_admission_gives_way_to_the_bound_at_once():
    w = World()
    w.edit_pool(replace(w.spec, admission="Fast", generation=2))
    w.node("n1", 2.0)
    w.apply(job("first", units=4, deadline=60.0))
    w.tick()
    w.run_until(lambda w: w.done("first"))
    loose(w)
    w.apply(job("second", units=4, deadline=w.now + 60.0, arrival=w.now))
    w.tick()
    assert w.state("second") == ("True", reasons.ADMITTED_STATISTICALLY)


def test_a_quiet_pool_has_nothing_to_write():
    w = behind()
    w.run_until(lambda w: w.done("a") and w.done("b"))
    w.run(200.0)
    written = w.pool_record
    w.run(1000.0)
    assert w.pool_record is written


def test_a_statistical_pool_keeps_no_processors_ahead_and_becomes_none_while_it_does():
    ahead = Reservation(uid="r", arrival=0.0, start=100.0, end=200.0, processors=1)
    w = statistical()
    w.inbox.append(ReservationApplied(ahead))
    w.tick()
    assert w.answers["r"].answer[:2] == ("False", reasons.INFEASIBLE_RESERVATION)
    w = World()
    w.node("n1", 2.0)
    w.inbox.append(ReservationApplied(ahead))
    w.tick()
    assert w.answers["r"].answer.status == "True"
    loose(w)
    w.tick()
    assert w.pool_record.spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    assert "1 reservation made without missRatio" in w.pool_record.spec_applied.message
