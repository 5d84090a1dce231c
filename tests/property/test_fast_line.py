"""What the fast line admits is done in time by a dispatcher that only fills processors, and it refuses nothing in vain.

The dispatcher is the paper's (6.2.2): a processor that becomes free computes for the first job of the line that it can
do anything for, until that job's deadline. It knows nothing of the test.
"""

from dataclasses import dataclass
from math import floor, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.scheduling.fast_line import FastLine
from punctual.scheduling.plan import Order
from punctual.theory.cost import Cost

TINY = 1e-6


@dataclass
class Waiting:
    order: Order
    left: float
    cost: Cost
    given: int = 0


class Cluster:
    def __init__(self, processors, *, grain=0.0):
        self.grain, self.now = grain, 0.0
        self.ends = [0.0] * processors
        self.line = FastLine(processors, grain=grain)
        self.waiting: dict[Order, Waiting] = {}
        self.missed, self.counted = [], []

    def run(self, until):
        """Give chunks to processors as they become free."""
        while True:
            free = [p for p, end in enumerate(self.ends) if end <= self.now + 1e-12]
            for p in free:
                self.fill(p)
            self.missed += [w.order for w in self.waiting.values() if w.order.deadline < self.now - TINY]
            later = [end for end in self.ends if end > self.now + 1e-12]
            nearest = min(later, default=inf) if self.waiting else inf
            if nearest == inf or nearest > until:
                self.now = max(self.now, until) if until < inf else self.now
                return
            self.now = nearest

    def fill(self, p):
        for order in sorted(self.waiting):
            w = self.waiting[order]
            share = min((order.deadline - self.now - w.cost.setup) / w.cost.per_unit, w.left)
            if self.grain:
                share = floor(share + TINY)
            if share <= TINY * w.left:
                continue
            if w.left - share <= TINY:
                share = w.left
            end = self.now + w.cost.setup + share * w.cost.per_unit
            if self.ends[p] > 0 and self.ends[p] in self.counted:
                self.counted.remove(self.ends[p])
                self.line.stop(self.ends[p])
            self.ends[p] = end
            w.left -= share
            w.given += 1
            left = self.line.length(w.left, w.cost, given=min(w.given, len(self.ends))) if w.left else 0.0
            self.line.start(self.now, order, left=left, end=end)
            self.counted.append(end)
            if not w.left:
                del self.waiting[order]
            return

    def ask(self, name, load, deadline, cost):
        order = Order(deadline, self.now, name)
        room = self.line.room(self.now, order, self.line.length(load, cost))
        if room.fits:
            self.line.join(order, room)
            self.waiting[order] = Waiting(order, load, cost)
        return room.fits

    def could(self, load, deadline, cost):
        """Whether processors have the time for all up to each deadline: without set-ups that is all it takes."""
        work = [(o.deadline, w.left * w.cost.per_unit) for o, w in self.waiting.items()] + [
            (deadline, load * cost.per_unit)
        ]
        spare = [
            sum(max(0.0, d - max(end, self.now)) for end in self.ends) - sum(x for due, x in work if due <= d)
            for d, _ in work
        ]
        return min(spare)


jobs = st.lists(
    st.tuples(st.floats(0, 20), st.integers(1, 60), st.floats(0.2, 60), st.sampled_from([0.5, 1.0, 3.0])),
    min_size=1,
    max_size=25,
)


def play(processors, trace, *, setup=0.0, grain=0.0):
    cluster = Cluster(processors, grain=grain)
    answers = []
    for i, (gap, load, deadline, chi) in enumerate(trace):
        cluster.run(cluster.now + gap)
        cost = Cost(chi, 0.0, 0.0, setup)
        could = cluster.could(load, cluster.now + deadline, cost)
        answers.append((cluster.ask(f"j{i}", float(load), cluster.now + deadline, cost), could))
        cluster.line.waiting.check()
        cluster.line.busy.check()
    cluster.run(inf)
    assert not cluster.missed
    assert not cluster.waiting
    return answers


@given(st.integers(1, 6), jobs)
def test_without_set_ups_it_admits_what_can_be_done_and_nothing_else(processors, trace):
    for admitted, spare in play(processors, trace):
        assert admitted == (spare >= 0) or abs(spare) < 1e-4


@given(st.integers(1, 6), jobs, st.sampled_from([0.1, 1.0, 4.0]))
def test_with_set_ups_what_it_admits_is_done_in_time(processors, trace, setup):
    play(processors, trace, setup=setup)


@given(st.integers(1, 6), jobs, st.sampled_from([0.0, 1.0]))
def test_with_whole_units_what_it_admits_is_done_in_time(processors, trace, setup):
    play(processors, trace, setup=setup, grain=1.0)


def test_the_papers_example_is_refused():
    """Four processors, a loose job at 0 that takes one of them until 20, one at 6 that needs all four until 14."""
    cost = Cost(1.0)
    line = FastLine(4)
    first = Order(20.0, 0.0, "first")
    line.join(first, line.room(0.0, first, line.length(20.0, cost)))
    line.start(0.0, first, left=0.0, end=20.0)
    assert not line.room(6.0, Order(14.0, 6.0, "second"), line.length(28.0, cost)).fits
    assert line.room(6.0, Order(14.0, 6.0, "second"), line.length(24.0, cost)).fits


def test_what_holds_processors_beyond_the_deadline_does_not_count_as_ending_first():
    """A job due at 100 holds three of four; taken to end first (225 s of work in 56 s) there would be room till 60."""
    cost = Cost(1.0)
    line = FastLine(4, ends=[75.0, 75.0, 75.0])
    assert line.delay(0.0, 200.0) == pytest.approx(56.25)
    order = Order(60.0, 0.0, "urgent")
    assert line.room(0.0, order, line.length(60.0, cost)).fits
    assert not line.room(0.0, order, line.length(61.0, cost)).fits


def test_a_job_that_leaves_gives_its_length_to_those_behind():
    line = FastLine(2)
    cost = Cost(1.0)
    a, b = Order(10.0, 0.0, "a"), Order(11.0, 0.0, "b")
    line.join(a, line.room(0.0, a, line.length(10.0, cost)))
    assert not line.room(0.0, b, line.length(14.0, cost)).fits
    line.leave(a)
    assert line.room(0.0, b, line.length(14.0, cost)).fits
