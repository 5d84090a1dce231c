"""Statistical admission: the arithmetic of algorithm 12, whom the dispatcher serves, and the controller's periods."""

from dataclasses import replace

import numpy as np
import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.bound import LEAST, SLOWER, BoundLine, MissRatio
from punctual.scheduling.discipline import Discipline, Order
from punctual.scheduling.placement import Demand, Ground
from punctual.scheduling.processors import Place
from punctual.scheduling.ranges import Ranges
from punctual.theory.cost import Cost

PLACES = [Place(f"n{i}", 0) for i in range(4)]


def demand(units: int, due: float, uid: str = "j", **cost: float) -> Demand:
    return Demand(order=Order(due, 0.0, uid), ranges=Ranges.of((0, units)), cost=Cost(**{"chi": 1.0, **cost}), due=due)


def line(*waiting: Demand, ends: tuple[float, ...] = (0.0,) * 4, bound: float = 1.0, **chosen) -> BoundLine:
    return BoundLine.of(0.0, PLACES, Ground(np.array(ends), Discipline(**chosen)), waiting, bound=bound)


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


def test_a_chunk_may_take_longer_than_expected_and_is_not_too_small():
    waiting = line(demand(100, 40.0))
    assert waiting.next(0.0).piece == (0, int(40.0 / SLOWER))
    assert waiting.next(39.0).piece == (0, int(LEAST * 100 / 4))


def test_who_is_late_goes_on_behind_those_who_are_not():
    waiting = line(demand(10, 5.0, "late"), demand(10, 50.0, "in time"))
    assert waiting.next(0.0).uid == "late"
    assert waiting.next(6.0).uid == "in time"


def test_a_period_counts_those_whose_deadline_lay_in_it():
    miss = MissRatio(0.1, period=10.0, end=10.0)
    for uid, deadline in (("a", 3.0), ("b", 4.0), ("c", 12.0)):
        miss.accept(uid, deadline)
    miss.ended("a")
    miss.look(9.0)
    assert miss.last is None
    before = miss.bound
    miss.look(10.0)
    assert (miss.last.time, miss.last.miss_ratio) == (10.0, 0.5)
    assert miss.bound < before, "more missed than may"
    miss.ended("c")
    miss.look(35.0)
    assert miss.last.time == 30.0
    assert miss.last.miss_ratio == 0.1, "nobody's deadline lay in it: nothing is learned"


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
    assert "allowed is 0.5" in w.records["out"].admitted.message
    w.run_until(lambda w: w.done("in"))
    assert w.met("in")
