"""Processors that take what waits: the paper's dispatcher (Mamat 2011, 6.2.2) with exact costs. It knows of no test.

Whenever a processor is free, and the port where there is one, the first job in order of deadlines that it can do
anything for gets a chunk that ends by that job's deadline. What is left of a job at its deadline is thrown away, and
the job is counted as missed.
"""

import heapq
from bisect import insort
from dataclasses import dataclass, field
from itertools import count
from math import floor, inf

TINY = 1e-7


@dataclass(order=True)
class Waiting:
    turn: tuple
    load: float = field(compare=False)
    cost: object = field(compare=False)
    left: float = field(compare=False, default=0.0)
    given: int = field(compare=False, default=0)


@dataclass(frozen=True)
class Chunk:
    uid: str
    processor: int
    start: float
    sent: float
    end: float
    load: float


class Machine:
    """``gave(chunk, waiting, before)`` is told of each chunk; ``before``: when its processor had become free."""

    def __init__(self, processors, *, one_port, grain=0.0, gave=None):
        self.one_port, self.grain = one_port, grain
        self.gave = gave or (lambda chunk, waiting, before: None)
        self.now, self.port = 0.0, 0.0
        self.processors = [(0.0, p) for p in range(processors)]  # a heap: when free
        self.waiting, self.chunks, self.missed, self.ended = [], [], set(), {}

    @property
    def free(self):
        return [at for at, _ in self.processors]

    def submit(self, uid, load, due, cost, *, arrival=None):
        turn = (due, self.now if arrival is None else arrival, uid)
        insort(self.waiting, Waiting(turn, load, cost, left=load))

    def run(self, until):
        for _ in count():
            self._give()
            if not self.waiting:
                break
            at = max(self.processors[0][0], self.port)
            at = max(at, self.now) if at > self.now else min(w.turn[0] for w in self.waiting)  # nobody can be given
            if at > until:
                break
            self.now = max(self.now, at)
            self._throw_away()
        if until < inf:
            self.now = max(self.now, until)
            self._throw_away()

    def _throw_away(self):
        for w in [w for w in self.waiting if w.turn[0] <= self.now]:
            if w.left > TINY * w.load:
                self.missed.add(w.turn[2])
            self.waiting.remove(w)

    def _give(self):
        while self.waiting and max(self.processors[0][0], self.port) <= self.now:
            found = next(((w, s) for w in self.waiting if (s := self._share(w)) > 0.0), None)
            if found is None:
                return
            waiting, share = found
            before, p = heapq.heappop(self.processors)
            cost = waiting.cost
            sent = self.now + cost.theta_cm + share * cost.tau
            chunk = Chunk(waiting.turn[2], p, self.now, sent, sent + cost.theta_cp + share * cost.chi, share)
            heapq.heappush(self.processors, (chunk.end, p))
            if self.one_port:
                self.port = sent
            waiting.left -= share
            waiting.given += 1
            self.chunks.append(chunk)
            self.ended[chunk.uid] = max(chunk.end, self.ended.get(chunk.uid, 0.0))
            if not waiting.left:
                self.waiting.remove(waiting)
            self.gave(chunk, waiting, before)

    def _share(self, waiting):
        cost, due = waiting.cost, waiting.turn[0]
        share = min((due - self.now - cost.setup) / (cost.tau + cost.chi), waiting.left)
        if waiting.left - share <= TINY * waiting.load:
            return waiting.left
        if self.grain:
            share = self.grain * floor(share / self.grain + TINY)
        return share if share > TINY * waiting.load else 0.0

    def check(self):
        """No two transfers overlap on the port, no two chunks on a processor."""
        if self.one_port:
            sent = -inf
            for c in sorted(self.chunks, key=lambda c: (c.start, c.sent)):
                assert c.start >= sent - 1e-9
                sent = c.sent
        until = {}
        for c in sorted(self.chunks, key=lambda c: (c.start, c.end)):
            assert c.start >= until.get(c.processor, 0.0) - 1e-9
            until[c.processor] = c.end
