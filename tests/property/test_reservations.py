"""Reservations and jobs at random: who was accepted gets what was promised, by a check that does not know the code."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.scheduling.admission.reservation_test import AcceptedReservation, BookedReservations, admit, nearest
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost

CLOSE = 1e-6
MANY = settings(max_examples=6 * settings.default.max_examples)
"""Examples cost a few milliseconds here."""
DISCIPLINES = [
    Discipline(order=order, partition=partition, assign=assign, network=network, start=start)
    for order, partition, assign, network, start in product(
        ("EDF", "FIFO", "MWF"), ("OPR", "EPR"), ("MN", "AN"), ("OnePort", "Concurrent"), ("Ready", "Together")
    )
]
costs = st.builds(
    Cost,
    chi=st.sampled_from([0.5, 1.0, 3.0]),
    tau=st.sampled_from([0.0, 0.1, 1.0]),
    theta_cm=st.sampled_from([0.0, 0.5, 2.0]),
    theta_cp=st.sampled_from([0.0, 1.0]),
)


class Job(NamedTuple):
    wait: float
    """Seconds after the one before it."""
    units: int
    window: float
    cost: Cost
    most: int | None
    reduce: float
    hole: bool
    inside: int | None
    """Which reservation it names, of those that were accepted and are not over."""


class Window(NamedTuple):
    wait: float
    ahead: float
    length: float
    processors: int
    io_ratio: float


waits = st.sampled_from([0.0, 0.5, 4.0, 17.3, 60.0])
jobs = st.builds(
    Job,
    waits,
    st.integers(1, 60),
    st.floats(3.0, 150.0),
    costs,
    st.none() | st.integers(1, 3),
    st.sampled_from([0.0, 0.0, 5.0]),
    st.booleans(),
    st.none() | st.integers(0, 2),
)
windows = st.builds(
    Window,
    waits,
    st.floats(0.0, 80.0),
    st.floats(0.5, 60.0),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
stories = st.lists(jobs | windows, min_size=1, max_size=14)


class Chunk(NamedTuple):
    """What was executed."""

    job: str
    place: int
    start: float
    sent: float
    end: float
    units: Range


@dataclass
class Bench:
    """A pool that does exactly as planned: each chunk begins at its booked time and takes what it costs."""

    discipline: Discipline
    speeds: tuple[float, ...]
    began: float = 0.0
    now: float = field(init=False)
    ahead: BookedReservations = field(default_factory=BookedReservations)
    promised: dict[str, Demand] = field(default_factory=dict)
    accepted: dict[str, Reservation] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)
    """The reservation that a job is in."""
    chunks: list[Chunk] = field(default_factory=list)
    reduced: dict[str, tuple[int, float, float]] = field(default_factory=dict)

    def __post_init__(self):
        self.now = self.began
        n = len(self.speeds)
        speeds = None if set(self.speeds) == {1.0} else np.array(self.speeds)
        self.places = tuple(Place(f"n{i}", 0) for i in range(n))
        timeline = Timeline(np.full(n, self.now), self.discipline, speeds=speeds)
        self.plan, _ = Plan.of(self.places, timeline, [])

    def wait(self, seconds):
        """Execute what is booked to begin until then."""
        until = self.now + seconds
        while first := min(
            ((start, i, k) for i, b in enumerate(self.plan.placements) for k, start in enumerate(b.starts.tolist())),
            default=None,
        ):
            start, i, k = first
            if start >= until:
                break
            self._begin(self.plan.placements[i], k, start)
        for b in self.plan.placements:
            if b.reducer is not None and not b.where.size and b.finish - b.demand.reduce < until:
                self.reduced[b.demand.uid] = (b.reducer, b.finish - b.demand.reduce, b.finish)
                timeline = self.plan.timeline.copy()
                timeline.ready[b.reducer] = max(timeline.ready[b.reducer], b.finish)
                self.plan = replace(self.plan.without(b.demand.uid), timeline=timeline)
        self.now = until
        self.plan = self.plan.at(self.now)

    def _begin(self, placement, k, start):
        piece = placement.pieces()[k][0]
        cost, place = placement.demand.cost, int(placement.where[k])
        sent = start + cost.theta_cm + piece.size * cost.tau
        end = sent + cost.theta_cp + piece.size * cost.chi * self.speeds[place]
        self.chunks.append(Chunk(placement.demand.uid, place, start, sent, end, piece))
        port = sent if self.discipline.one_port else -np.inf
        self.plan = self.plan.created(placement, {k: piece}, [end], port)

    def ask(self, asked):
        self.wait(asked.wait)
        name = f"a{len(self.promised) + len(self.accepted)}-{self.now}"
        (self.ask_job if isinstance(asked, Job) else self.ask_window)(name, asked)
        self.plan.check()

    def ask_job(self, name, asked):
        deadline, cost = self.now + asked.window, asked.cost
        order = self.discipline.order_of(
            name, arrival=self.now, deadline=deadline, load=asked.units, cost=cost, processors=len(self.places)
        )
        ranges = Ranges.of((0, asked.units))
        if asked.hole and not self.discipline.one_port and asked.units > 2:
            ranges = Ranges.of((0, asked.units // 3), (asked.units, 2 * asked.units - asked.units // 3))
        reduce, inside = asked.reduce, None
        there = [uid for uid, r in self.accepted.items() if r.end > self.now]
        if asked.inside is not None and there and not self.discipline.one_port:  # whose port is the reservation's
            named = there[asked.inside % len(there)]
            inside = self.ahead.number(named)
        demand = Demand(
            order=order, ranges=ranges, cost=cost, due=deadline - reduce, most=asked.most, reduce=reduce,
            kept_back=reduce, running_until=self.now, inside=inside,
        )  # fmt: skip
        got = self.plan.insert(demand)
        if not isinstance(got, Shortfall):
            self.plan = got
            self.promised[name] = demand
            if inside is not None:
                self.inside[name] = named

    def ask_window(self, name, asked):
        start = self.now + asked.ahead
        r = Reservation(
            uid=name, arrival=self.now, start=start, end=start + asked.length, processors=asked.processors,
            io_ratio=asked.io_ratio, group=name,
        )  # fmt: skip
        got = admit(r, self.ahead, self.plan, self.now)
        if not isinstance(got, AcceptedReservation):
            return r
        assert len(set(got.held.places)) == asked.processors
        assert {b.demand.uid for b in got.plan.placements} == {b.demand.uid for b in self.plan.placements}
        self.plan = got.plan
        self.ahead.book(got.held)
        self.accepted[name] = r
        self.check_calendar()
        return None

    def check_calendar(self):
        self.ahead.calendar.check()
        self.ahead.port.check()

    def flaws(self):
        """Return what is wrong with all that was accepted and done."""
        return [*self._of_jobs(), *self._of_places(), *self._of_port()]

    def _of_jobs(self):
        for name, demand in self.promised.items():
            mine = [c for c in self.chunks if c.job == name]
            if sum(c.units.size for c in mine) != demand.ranges.total:
                yield f"{name}: another load than asked"
            if Ranges.of(*(c.units for c in mine)) != demand.ranges:
                yield f"{name}: other units than asked"
            if max(c.end for c in mine) > demand.due + CLOSE:
                yield f"{name}: late, {max(c.end for c in mine)} for {demand.due}"
            if demand.most and max(sum(o.start <= c.start < o.end - CLOSE for o in mine) for c in mine) > demand.most:
                yield f"{name}: more processors at a time than allowed"
            if demand.reduce:
                _, start, end = self.reduced[name]
                if start < max(c.end for c in mine) - CLOSE or end > demand.due + demand.reduce + CLOSE:
                    yield f"{name}: reduced from {start} to {end}"
            if self.discipline.together and len({round(c.start, 6) for c in mine if c.place}) > len(mine):
                yield f"{name}: not together"

    def _of_places(self):
        lines, outside = defaultdict(list), defaultdict(list)
        steps = [(name, *step) for name, step in self.reduced.items()]
        for name, place, start, end in [*((c.job, c.place, c.start, c.end) for c in self.chunks), *steps]:
            lines[place].append((start, end, name))
            if name not in self.inside:
                outside[place].append((start, end, name))
                continue
            r, places = self.ahead.held[self.inside[name]]
            if self.places[place] not in places or start < r.start - CLOSE or end > r.end + CLOSE:
                yield f"{name}: on {place} from {start} to {end}, outside of {r}"
        yield from overlaps(lines)
        for held in self.windows:
            for place in held.places:
                outside[self.places.index(place)].append((held.reservation.start, held.reservation.end, "reserved"))
        yield from overlaps(outside)

    @property
    def windows(self):
        return self.ahead.held.values()

    def _of_port(self):
        if not self.discipline.one_port:
            return
        sending = [(c.start, c.sent, c.job) for c in self.chunks]
        sending += [(r.start, r.start + (r.end - r.start) * r.io_ratio, r.uid) for r in self.accepted.values()]
        yield from overlaps({"port": [s for s in sending if s[1] > s[0]]})


def overlaps(lines):
    for name, line in lines.items():
        for a, b in pairwise(sorted(line)):
            if b[0] < a[1] - CLOSE:
                yield f"on {name} overlap {a} and {b}"


speeds = st.lists(st.just(1.0), min_size=1, max_size=4) | st.lists(
    st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=4
)


@MANY
@given(stories, st.sampled_from(DISCIPLINES), speeds, st.sampled_from([0.0, 1000.0]))
def test_with_exact_costs_no_job_and_no_reservation_that_was_accepted_misses(story, discipline, speeds, began):
    bench = Bench(discipline, tuple(speeds), began)
    for asked in story:
        bench.ask(asked)
    bench.wait(1e6)
    assert bench.flaws() == []


def answer(search):
    while True:
        try:
            next(search)
        except StopIteration as end:
            return end.value


@MANY
@given(stories, windows, st.sampled_from(DISCIPLINES), speeds)
def test_the_window_that_is_offered_is_accepted_and_none_a_millionth_nearer(story, last, discipline, speeds):
    bench = Bench(discipline, tuple(speeds))
    for asked in story:
        bench.ask(asked)
    bench.wait(last.wait)
    refused = bench.ask_window("last", last)
    if refused is None:
        return
    offered = answer(nearest(refused, bench.ahead, bench.plan, bench.now))
    if offered is None:
        assert refused.processors > len(bench.places)
        return
    assert offered >= refused.start
    assert isinstance(admit(refused.at(offered), bench.ahead, bench.plan, bench.now), AcceptedReservation)
    nearer = bench.now + (offered - bench.now) * (1 - 1e-6)
    if nearer >= refused.start:
        assert not isinstance(admit(refused.at(nearer), bench.ahead, bench.plan, bench.now), AcceptedReservation)


@given(stories, st.sampled_from(DISCIPLINES), speeds)
def test_a_plan_on_the_same_ground_again_is_not_later(story, discipline, speeds):
    bench = Bench(discipline, tuple(speeds))
    for asked in story:
        # of a piece with a hole, or of all that may run at a time, a part that has begun lets the rest wait for longer
        bench.ask(asked._replace(hole=False, most=None) if isinstance(asked, Job) else asked)
        again = bench.plan.retimed(bench.plan.timeline)
        assert again.keeps_all()
        for a, b in zip(again.placements, bench.plan.placements, strict=True):
            assert (a.starts - b.starts).max(initial=0.0) < CLOSE
            assert a.finish < b.finish + CLOSE
