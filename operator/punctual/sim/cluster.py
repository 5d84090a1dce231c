"""Modelled cluster: processors that compute chunks, a port that sends their inputs, and chunks that are ended early.

It uses true costs, which may differ from the estimates that the Pool plans with, and has no access to plans.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from punctual.scheduling.model.job import Chunk
from punctual.sim.work import Work
from punctual.theory.cost import Cost


@dataclass(slots=True)
class Running:
    """A chunk on its processor. Times in s; ``size`` in the Pool's units."""

    job: str
    chunk: Chunk
    processor: int
    cost: Cost
    """Its true cost, the processor's speed included."""
    work: Work
    send_start: float = 0.0
    send_end: float = 0.0
    end: float = 0.0
    turn: int = 0
    """Version of its times: an event with an older version is void."""
    offered: bool = False
    """It was offered an end."""
    told: int = 0
    """Units that it has reported."""
    name: str = field(init=False)
    """Its pod's name and uid."""

    def __post_init__(self) -> None:
        """Compute the name once: it is read often."""
        self.name = f"{self.job}/{self.chunk.kind}/{self.chunk.begin}/{self.chunk.attempt}"

    def time(self, port: float | None, created: float) -> None:
        """Set its times: it sends from ``created`` on, but not before the port is free."""
        self.send_start = created if port is None else max(created, port)
        self.send_end = self.send_start + self.cost.theta_cm + self.work.size * self.cost.tau
        self.work = Work(self.work.size, self.cost.chi, self.send_end + self.cost.theta_cp)
        self.end = self.work.ends


class Cluster:
    """Running chunks. ``one_port``: inputs are sent one after the other, in the order in which chunks were created."""

    def __init__(self, *, one_port: bool) -> None:
        self.one_port = one_port
        self.running: dict[str, Running] = {}
        self._by_job: dict[str, dict[str, Running]] = {}
        self._queue: deque[Running] = deque()  # chunks with an input still to be sent, in order

    def start(self, now: float, made: Running) -> None:
        """Start a chunk: it sends as soon as the port allows."""
        port = None
        if self.one_port:
            while self._queue and self._queue[0].send_end <= now:
                self._queue.popleft()
            port = self._queue[-1].send_end if self._queue else now
            self._queue.append(made)
        made.time(port, now)
        self.running[made.name] = made
        self._by_job.setdefault(made.job, {})[made.name] = made

    def stop(self, now: float, name: str) -> list[Running]:
        """Remove a chunk; return the chunks behind it at the port, which move forward."""
        gone = self.running.pop(name)
        there = self._by_job[gone.job]
        del there[name]
        if not there:
            del self._by_job[gone.job]
        if not self.one_port or gone.send_end <= now or gone not in self._queue:
            return []
        at = self._queue.index(gone)
        del self._queue[at]
        moved = list(self._queue)[at:]
        port = self._queue[at - 1].send_end if at else now
        for one in moved:
            one.time(max(port, now), one.chunk.created)
            one.turn += 1
            port = one.send_end
        return moved

    def chunks_of(self, job: str) -> list[Running]:
        """Return the running chunks of a job."""
        return list(self._by_job.get(job, {}).values())

    def among(self, processors: Collection[int]) -> list[Running]:
        """Return the running chunks on these processors."""
        return [r for r in self.running.values() if r.processor in processors]
