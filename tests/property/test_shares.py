"""If the shares of all namespaces add up to no more than the pool, each gets its share, whatever the others ask for.

A divisible job within its share is refused only for chunks that already run, for set-up, or for `processors.min`.
So without set-ups (and the margin), and with work that can be begun anew at any time, none is.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st
from world import World, job

from punctual import reasons
from punctual.scheduling.admission.exact import PlanTest
from punctual.scheduling.admission.shares import Shares
from punctual.scheduling.model.discipline import Order
from punctual.scheduling.model.pool_spec import Tenancy
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.placement.calendar import BookedSpan, Calendar
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost

NAMES = ("a", "b", "c")
FINE = 1e-3
"""Seconds that a unit takes where rounding to whole units shall not matter."""


@st.composite
def splits(draw):
    """Shares of three namespaces that add up to at most 100 %."""
    first = draw(st.integers(20, 60))
    second = draw(st.integers(10, 90 - first))
    third = draw(st.integers(10, 100 - first - second))
    return dict(zip(NAMES, (first / 100, second / 100, third / 100), strict=True))


asks = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.floats(0.05, 1.3),  # of what is left of the share until the deadline
        st.floats(1.0, 500.0),  # deadline
        st.floats(0.0, 60.0),  # time until the next one
    ),
    min_size=1,
    max_size=25,
)


def demand(uid, due, work):
    units = max(1, int(work / FINE))
    return Demand(order=Order(due, 0.0, uid), ranges=Ranges.of((0, units)), cost=Cost(FINE), due=due)


@given(split=splits(), processors=st.integers(1, 6), wanted=asks)
def test_work_within_shares_fits_the_pool_if_it_is_done_by_deadline(split, processors, wanted):
    """The ideal pool: what is due first has all processors, whatever the order and the times of requests."""
    shares, now, left = Shares(), 0.0, {}
    shares.put_in_force(0.0, Tenancy(own=tuple(split.items())), float(processors))
    places = [Place("n", slot) for slot in range(processors)]
    for k, (namespace, part, ahead, gap) in enumerate(wanted):
        uid, due = f"j{k}", now + ahead
        account = shares.account(namespace, now)
        asked = demand(uid, due, part * max(0.0, account.spare(due)))
        if not shares.limit(namespace, now).fits(asked):
            continue
        plan, missed = Plan.of(places, Timeline(np.full(processors, now)), [demand(*one) for one in left.values()])
        assert not missed
        assert PlanTest(plan).fits(asked), f"{uid} of {namespace} is within its share"
        shares.book(uid, shares.limit(namespace, now), deadline=due, due=due, work=asked.work, units=asked.ranges.total)
        left[uid] = uid, due, asked.work
        now = _done(left, now, gap, processors)


def _done(left, now, gap, processors):
    """Let all processors work on what is due first."""
    done = gap * processors
    for uid, due, work in sorted(left.values(), key=lambda one: one[1]):
        spent = min(done, work)
        done -= spent
        left[uid] = uid, due, work - spent
        if work - spent <= FINE:
            del left[uid]
    return now + gap


class Literal:
    """The account as its words say it: work in order of due times, by small steps."""

    def __init__(self, rate, windows):
        self.rate, self.windows, self.now, self.work = rate, windows, 0.0, {}

    def supply(self, until):
        taken = sum(n * max(0.0, min(end, until) - max(start, self.now)) for start, end, n in self.windows)
        return self.rate * (until - self.now) - taken

    def spare(self, due):
        dues = {due, *(d for d, _ in self.work.values() if d > due)}
        return min(self.supply(until) - sum(w for d, w in self.work.values() if d <= until) for until in dues)

    def fits(self, due, work):
        return work <= self.spare(due) + 1e-6

    def advance(self, now):
        done, self.now = self.supply(now), now
        for uid, (due, work) in sorted(self.work.items(), key=lambda one: (one[1][0], int(one[0]))):
            spent = min(done, work)
            done -= spent
            self.work[uid] = due, work - spent
            if due <= now:
                del self.work[uid]


several = st.lists(st.tuples(st.floats(1.0, 200.0), st.floats(0.0, 0.2) | st.floats(0.05, 1.0)), min_size=1, max_size=6)
steps = st.lists(
    st.tuples(
        several,  # due in, and work as a part of the supply until then
        st.floats(0.0, 50.0),  # time that passes
        st.none() | st.tuples(st.integers(0, 30), st.floats(0.0, 1.0)),  # which ends, and the part that is undone
    ),
    min_size=1,
    max_size=8,
)
windows = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 100), st.integers(1, 2)), max_size=4)


@given(todo=steps, rate=st.floats(4.0, 8.0), booked=windows)
def test_the_index_says_what_a_walk_over_all_promises_says(todo, rate, booked):
    spans = [BookedSpan(float(start), float(start + length), n) for start, length, n in booked]
    assume(Calendar(spans).most(0.0, 1000.0) <= rate)
    literal, shares = Literal(rate, [tuple(span) for span in spans]), Shares()
    shares.put_in_force(0.0, Tenancy(max_share=0.5), 2.0 * rate)
    shares.reserve("a", 0.0, spans)
    made = 0
    for asked, wait, ending in todo:
        account = shares.account("a", literal.now)
        for ahead, part in asked:
            due, made = literal.now + ahead, made + 1
            work = part * literal.supply(due)
            near = abs(literal.spare(due) - work) < 1e-4
            assert near or account.fits(due, work) == literal.fits(due, work)
            if made % 4 == 0:  # not each time: it brings the account up to date
                assert near or account.fits_at(rate, due, work) == literal.fits(due, work)
                assert account.spare(due) == pytest.approx(literal.spare(due), abs=1e-4)
            if literal.fits(due, work):
                shares.book(str(made), shares.limit("a", literal.now), deadline=due, due=due, work=work, units=100)
                literal.work[str(made)] = due, work
        if ending and (uid := str(ending[0])) in literal.work.keys() & shares.bookings.keys():
            due, work = literal.work[uid]
            undone, whole = int(100 * ending[1]), shares.bookings[uid].work
            literal.work[uid] = due, max(0.0, work - undone / 100 * whole)
            shares.end(uid, undone)
        literal.advance(literal.now + wait)


real = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from([0.2, 0.5, 0.8, 0.9, 1.0, 1.2]),  # of its share until then
        st.integers(20, 150),  # deadline
        st.integers(0, 30),  # time until the next one
        st.sampled_from([1, 1, 1, 1, 2]),  # processors.min
    ),
    min_size=3,
    max_size=12,
)


@given(split=splits(), nodes=st.integers(1, 4), wanted=real, admission=st.sampled_from(["Exact", "Fast", "Hybrid"]))
def test_a_job_within_its_share_is_refused_only_for_what_is_named(split, nodes, wanted, admission):
    """On a whole Pool: if it is refused for capacity, it fits once nothing runs and nothing must be set up."""
    w = World(startup=1.0)
    tenancy = Tenancy(own=tuple(split.items()))
    w.edit_pool(replace(w.spec, generation=2, admission=admission, threshold=3, tenancy=tenancy))
    for n in range(nodes):
        w.node(f"n{n}", cpu=1)
    w.tick()
    for k, (namespace, part, ahead, gap, asked) in enumerate(wanted):
        uid, units = f"j{k}", max(2, int(part * split[namespace] * nodes * (ahead - 4)))
        least = min(asked, nodes)
        w.apply(
            job(
                uid,
                namespace=namespace,
                units=units,
                deadline=w.now + ahead,
                arrival=w.now,
                theta_cp=2.0,
                min_processors=least,
            )
        )
        w.tick()
        answer = w.records[uid].admitted
        note(f"{w.now}: {uid} of {namespace}: {answer}")
        if answer.reason == reasons.INFEASIBLE_CAPACITY and least == 1:
            assert _fits_ideally(w, uid), "neither chunks that run nor set-ups are in the way"
        w.run(w.now + gap)
    for uid, record in w.records.items():
        if record.promise is not None and record.finished is not None:
            assert record.finished <= record.promise.deadline, uid


def _fits_ideally(w, refused):
    """Whether all that is promised and one job more fit if work could be divided and moved at any time."""
    work = []
    for uid, record in w.records.items():
        asked = w.jobs[uid]
        if record.ended or (record.promise is None and uid != refused):
            continue
        running = sum(min(c.size, max(0.0, c.promised_end - w.now)) for c in record.chunks)
        owned = sum(c.size for c in record.chunks)
        left = asked.units - record.completed.total - owned + running
        work.append((asked.deadline - w.spec.margin, left))
    total, capacity = 0.0, len(w.nodes)
    for due, left in sorted(work):
        total += left
        if total > capacity * (due - w.now) + 1e-6:
            return False
    return True
