"""Algorithms 1 to 4 of Mamat 2011 (ch. 5) to the letter: jobs around reservations, in stages.

What had to be added, as the text does not work without: a reservation counts up to the deadline only, and not from
before t₀; no μ, share or time is below zero; a job that algorithm 3 admits and algorithm 4 cannot place is refused; a
reservation gets processors that are free throughout, in the order of their numbers. A processor that has a chunk in a
later stage is held in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from punctual.sim.trace import JobLine, ReservationLine, Trace
from punctual.theory.cost import Cost

TINY = 1e-9


class Chunk(NamedTuple):
    """Sent from ``start`` until ``sent``, computed until ``end``."""

    processor: int
    stage: int
    start: float
    sent: float
    end: float
    load: float


class Window(NamedTuple):
    """A reservation, or with no ``processors`` what a later stage sends: the port is taken until ``sent``."""

    start: float
    sent: float
    end: float
    processors: frozenset[int]


@dataclass(slots=True)
class State:
    """From when on each processor is free for the next job, and what is booked."""

    free: list[float]
    windows: list[Window]


@dataclass(slots=True)
class Stages:
    """All that is admitted. ``begun``: chunks of jobs that were given out; ``waiting``: jobs with their plans."""

    processors: int
    cost: Cost
    reservations: list[Window] = field(default_factory=list)
    waiting: list[tuple[JobLine, list[Chunk]]] = field(default_factory=list)
    begun: list[Chunk] = field(default_factory=list)

    def decide(self, asked: JobLine | ReservationLine) -> bool:
        """Algorithm 1."""
        now = asked.arrival
        self._give_out(now)
        reservations, tasks = list(self.reservations), [job for job, _ in self.waiting]
        if isinstance(asked, ReservationLine):
            window = self._reserve(asked, now)
            if window is None:
                return False
            reservations.append(window)
        else:
            tasks.append(asked)
        state = self._state(now, reservations)
        planned = []
        for task in sorted(tasks, key=lambda t: (t.arrival + t.deadline, t.arrival, t.id)):
            chunks = self._admit(task, now, state)
            if not chunks:
                return False
            planned.append((task, chunks))
        self.waiting, self.reservations = planned, reservations
        return True

    def _give_out(self, now: float) -> None:
        begins = [(job, chunks) for job, chunks in self.waiting if chunks[0].start <= now + TINY]
        self.waiting = [each for each in self.waiting if each not in begins]
        self.begun += [chunk for _, chunks in begins for chunk in chunks]

    def _state(self, now: float, reservations: Sequence[Window]) -> State:
        """Return what those who wait find."""
        free = [now] * self.processors
        windows = [window for window in reservations if window.end > now]
        later: dict[float, Window] = {}
        port = now
        for chunk in self.begun:
            free[chunk.processor] = max(free[chunk.processor], chunk.end)
            if chunk.start > now and chunk.stage:
                later[chunk.start] = Window(chunk.start, chunk.sent, chunk.sent, frozenset())
            elif chunk.sent > now:
                port = max(port, chunk.sent)
        state = State([max(at, port) for at in free], sorted([*windows, *later.values()]))
        self._settle(state)
        return state

    @staticmethod
    def _settle(state: State) -> None:
        """Alg. 3, line 2; and nobody is free inside a reservation of its own."""
        for window in state.windows:
            for p, at in enumerate(state.free):
                if p in window.processors and window.start - TINY <= at < window.end:
                    state.free[p] = window.end
                elif window.start <= at < window.sent:
                    state.free[p] = window.sent

    def _reserve(self, asked: ReservationLine, now: float) -> Window | None:
        """Algorithm 2."""
        sent = asked.start + (asked.end - asked.start) * asked.io_ratio
        booked = [w for w in self.reservations if w.end > now]
        sending = [(w.start, w.sent) for w in booked] + [(c.start, c.sent) for c in self.begun]
        if any(start < sent - TINY and asked.start < end - TINY for start, end in sending):
            return None
        taken = {p for w in booked if w.start < asked.end and asked.start < w.end for p in w.processors}
        taken |= {c.processor for c in self.begun if c.end > asked.start + TINY}
        there = [p for p in range(self.processors) if p not in taken]
        if len(there) < asked.processors:
            return None
        return Window(asked.start, sent, asked.end, frozenset(there[: asked.processors]))

    def _admit(self, task: JobLine, now: float, state: State) -> list[Chunk]:
        """Algorithm 3; empty: it cannot be done."""
        due, cost = task.arrival + task.deadline, self.cost
        order = sorted(range(self.processors), key=lambda p: state.free[p])
        begin = max(task.arrival, state.free[order[0]])
        io, computing = 0.0, [0.0] * self.processors
        for window in state.windows:
            if begin < window.start < due:
                io += min(window.sent, due) - window.start
                for p in window.processors:
                    computing[p] += max(0.0, min(window.end, due) - window.sent)
        total = blocked = 0.0
        for n, p in enumerate(order, start=1):
            mu = due - max(state.free[p], task.arrival) - io - computing[p] - blocked
            share = max(0.0, mu) / cost.per_unit
            total += share
            if total >= task.load:
                return self._partition(task, order[:n], state)
            blocked += share * cost.tau
        return []

    def _partition(self, task: JobLine, chosen: Sequence[int], state: State) -> list[Chunk]:
        """Algorithm 4; the state is as the next job finds it."""
        due, cost = task.arrival + task.deadline, self.cost
        start = {p: state.free[p] for p in chosen}
        begin = min(start.values())
        stages = [w for w in state.windows if w.sent > begin and w.start < due]
        left, chunks = task.load, []
        for i, window in enumerate([*stages, Window(due, due, due, frozenset())]):
            sent, end = min(window.sent, due), window.end
            port = -inf
            for p in sorted(chosen, key=lambda p: (start[p], p)):
                at = start[p] = max(start[p], port)
                if p in window.processors:
                    load = max(0.0, window.start - at) / cost.per_unit
                    start[p] = max(at, end)
                else:
                    load = max(0.0, min((window.start - at) / cost.tau, (sent - at) / cost.per_unit))
                    start[p] = max(at, sent)
                load = min(load, left)
                port = at + load * cost.tau
                if load > 0.0:
                    chunks.append(Chunk(p, i, at, port, at + load * cost.per_unit, load))
                    left -= load
                if left <= TINY * task.load:
                    self._update(chunks, state)
                    return chunks
        return []

    def _update(self, chunks: Sequence[Chunk], state: State) -> None:
        """Alg. 4, line 32."""
        first = chunks[0].stage
        port = max(c.sent for c in chunks if c.stage == first)
        state.free[:] = [max(at, port) for at in state.free]
        for chunk in chunks:
            state.free[chunk.processor] = max(state.free[chunk.processor], chunk.end)
        later = [Window(c.start, c.sent, c.sent, frozenset()) for c in chunks if c.stage != first]
        state.windows = sorted([*state.windows, *later])
        self._settle(state)

    def finish(self) -> None:
        """Give out all that waits."""
        self._give_out(inf)

    def check(self) -> None:
        """No two transfers overlap on the port, no two things on a processor."""
        chunks = [(c.start, c.sent, c.end, frozenset({c.processor})) for c in self.begun]
        used = sorted(chunks + [tuple(w) for w in self.reservations], key=lambda u: u[:2])
        sent, until = -inf, {}
        for start, io, end, processors in used:
            slack = 1e-6
            if io > start:
                assert start >= sent - slack, (start, sent)
                sent = io
            for p in processors:
                assert start >= until.get(p, -inf) - slack, (p, start, until[p])
                until[p] = max(end, until.get(p, -inf))


def letter(trace: Trace, processors: int, cost: Cost) -> dict[str, float]:
    """Return the shares of jobs and reservations refused, and of processor time used."""
    test = Stages(processors, cost)
    refused = sum(not test.decide(line) for line in trace.lines if isinstance(line, JobLine | ReservationLine))
    test.finish()
    test.check()
    used = sum(c.load * cost.per_unit for c in test.begun)
    used += sum(len(w.processors) * (w.end - w.start) for w in test.reservations)
    last = max([1.0, *(c.end for c in test.begun), *(w.end for w in test.reservations)])
    return {"rejected": refused / max(1, len(trace.lines)), "utilization": used / (processors * last)}
