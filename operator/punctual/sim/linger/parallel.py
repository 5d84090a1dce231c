"""Runs parallel guests on the nodes of a cluster (Ryu 2001, 4.3).

A guest has one process on each of its nodes. Its processes compute for a phase, and wait for each other. What they do
when a node becomes busy follows from the policy:

- LingerLonger keeps its processes: on idle nodes first, then on the least used busy ones. Some or all processes move
  when that pays for the guest. With ``adapt``, it runs as many processes as are fastest.
- LingerForever keeps processes and nodes.
- ImmediateEviction reconfigures: it runs as many processes as the largest power of two of idle nodes.
- PauseAndMigrate stops all processes, and reconfigures after `PAUSE` seconds.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from punctual.linger.cost import Move
from punctual.linger.episode import Interval
from punctual.linger.parallel import BurstLoad, phase_time, power_of_two, processes
from punctual.linger.policy import decide, lingers
from punctual.sim.linger.bursts import WINDOW, Bursts, Floats, load
from punctual.sim.linger.hosts import Series
from punctual.sim.linger.options import Options
from punctual.sim.linger.report import Result

STEPS: Final = 20
"""Steps of a window. Within a step (0.1 s), a host's idle time counts as spread evenly."""
STEP: Final = WINDOW / STEPS


@dataclass(slots=True)
class _Guest:
    left: float
    """CPU seconds of all its processes."""
    submitted: float
    began: float | None = None
    nodes: list[int] = field(default_factory=list)
    need: Floats = field(default_factory=lambda: np.empty(0))
    """CPU seconds until the barrier, by process."""
    pause: float = 0.0
    """Seconds until it goes on."""
    stopped: bool = False
    """By PauseAndMigrate."""


class _Moved(NamedTuple):
    """A guest with some processes moved: its nodes, the age of the youngest episode that they leave, and the cost."""

    nodes: list[int]
    age: float
    move: Move


@dataclass(slots=True)
class _Cluster:
    options: Options
    result: Result
    hosts: list[Interval]
    queue: deque[_Guest]
    running: list[_Guest] = field(default_factory=list)

    def work(self, ours: Floats, preemptions: Floats, now: float) -> None:
        """Let guests run for a step. By node: CPU for a guest, and preemptions of it."""
        self.result.states["queued"] += STEP * len(self.queue)
        for guest in list(self.running):
            waits = min(guest.pause, STEP)
            guest.pause -= waits
            lingering = any(self.hosts[node].busy for node in guest.nodes)
            state = "paused" if guest.stopped else "lingering" if lingering else "running"
            self.result.states["moving"] += waits
            self.result.states[state] += STEP - waits
            if not guest.stopped:
                self._run(guest, ours[guest.nodes], preemptions[guest.nodes], rest=1.0 - waits / STEP, now=now)

    def _run(self, guest: _Guest, offered: Floats, preempted: Floats, *, rest: float, now: float) -> None:
        """Let a guest run in the last ``rest`` of a step, phase by phase, or until it is done."""
        while rest > 0.0:
            with np.errstate(divide="ignore", invalid="ignore"):
                takes = np.where(guest.need > 0.0, guest.need / offered, 0.0)
            phase = min(float(takes.max()), rest)
            computes = np.minimum(takes, phase)
            done = np.minimum(guest.need, offered * computes)
            guest.need -= done
            guest.left -= float(done.sum())
            self.result.work += float(done.sum())
            self.result.delay += float((preempted * computes).sum()) * self.options.switch
            rest -= phase
            if float(takes.max()) > phase:
                return None
            if guest.left <= 1e-6:
                return self._end(guest, now + STEP * (1.0 - rest))
            self._begin_phase(guest)
        return None

    def _begin_phase(self, guest: _Guest) -> None:
        """Give each process the same work, the last time what is left."""
        each = min(self.options.phase, guest.left / len(guest.nodes))
        guest.need = np.full(len(guest.nodes), each)

    def _end(self, guest: _Guest, at: float) -> None:
        assert guest.began is not None
        self.result.completions.append(at - guest.submitted)
        self.result.executions.append(at - guest.began)
        self.running.remove(guest)
        self.queue.append(_Guest(self.options.work, at))

    def decide(self, now: float) -> None:
        """Move, stop, reconfigure and place guests, at the end of a window.

        Guests that linger move only to nodes that no waiting guest takes: a cluster does more with more guests.
        """
        if lingers(self.options.policy):
            self._place(now)
        for guest in list(self.running):
            if guest.pause <= 0.0:
                self._decide_one(guest)
        self._place(now)

    def _place(self, now: float) -> None:
        while self.queue and (nodes := self._choose()):
            guest = self.queue.popleft()
            guest.began = now if guest.began is None else guest.began
            self.running.append(guest)
            self._occupy(guest, nodes)

    def _decide_one(self, guest: _Guest) -> None:
        if self.options.adapt and lingers(self.options.policy):
            return self._adapt(guest)
        if lingers(self.options.policy):
            return self._move(guest)
        ages = [self.hosts[node].age for node in guest.nodes if self.hosts[node].busy]
        nodes = self._choose(guest)
        if not ages and len(nodes) <= len(guest.nodes):
            guest.stopped = False
            return None
        goal = Move(0.0, 1.0, self.options.pause) if nodes else None
        step = decide(self.options.policy, max(ages, default=None), goal).step
        guest.stopped = step == "Pause"
        if step == "Queue":
            self.result.evictions += 1
            self.running.remove(guest)
            guest.nodes = []
            self.queue.append(guest)
        elif not guest.stopped:
            self._reconfigure(guest, nodes)
        return None

    def _adapt(self, guest: _Guest) -> None:
        """Run as many processes as are fastest, if that pays when the nodes stay as they are for as long again."""
        nodes = self._choose(guest)
        move = Move(self._speed(guest.nodes), self._speed(nodes), self.options.pause, left=guest.left)
        if len(nodes) == len(guest.nodes):
            self._move(guest)
        elif move.pays(min(self.hosts[node].age for node in guest.nodes)):
            self._reconfigure(guest, nodes)

    def _speed(self, nodes: Sequence[int]) -> float:
        """Return the work of a guest on these nodes in a second."""
        work = self.options.phase
        return len(nodes) * work / phase_time(work, [self._load(node) for node in nodes])

    def _load(self, node: int) -> BurstLoad:
        return load(self.hosts[node].use)

    def _reconfigure(self, guest: _Guest, nodes: list[int]) -> None:
        self.result.migrations += 1
        self.result.lost += self.options.pause
        self._occupy(guest, nodes)
        guest.pause = self.options.pause

    def _occupy(self, guest: _Guest, nodes: list[int]) -> None:
        guest.nodes, guest.stopped = nodes, False
        self._begin_phase(guest)

    def _move(self, guest: _Guest) -> None:
        """Move processes from the most used busy nodes to idle ones, as many at once as gain most, if that pays.

        Processes wait for the slowest one, so it must pay for the guest as a whole: one process less on busy nodes
        gains little as long as others stay there. All wait for the move.
        """
        busy = sorted((node for node in guest.nodes if self.hosts[node].busy), key=lambda node: -self.hosts[node].use)
        moves: list[_Moved] = []
        for left, goal in zip(busy, [node for node in self._free() if not self.hosts[node].busy], strict=False):
            nodes = list(moves[-1].nodes) if moves else list(guest.nodes)
            nodes[nodes.index(left)] = goal
            age = min(self.hosts[node].age for node in busy[: len(moves) + 1])
            move = Move(self._speed(guest.nodes), self._speed(nodes), self.options.pause, left=guest.left)
            moves.append(_Moved(nodes, age, move))
        paying = [moved for moved in moves if decide(self.options.policy, moved.age, moved.move).step == "Move"]
        if paying:
            best = max(paying, key=lambda moved: moved.move.gain(moved.age))
            self.result.migrations += moves.index(best) + 1
            self.result.lost += self.options.pause
            guest.nodes, guest.pause = best.nodes, self.options.pause

    def _choose(self, guest: _Guest | None = None) -> list[int]:
        """Return the nodes for a guest, those that it has among them; none: it waits."""
        most, policy = self.options.parallel, self.options.policy
        own = set(guest.nodes) if guest is not None else set()
        free = self._free(own)
        if not lingers(policy):
            idle = [node for node in free if not self.hosts[node].busy]
            return idle[: power_of_two(min(most, len(idle)))]
        if self.options.adapt:
            return free[: processes(most, self.options.phase, [self._load(node) for node in free])]
        return free[:most] if len(free) >= most else []

    def _free(self, own: Sequence[int] | set[int] = ()) -> list[int]:
        """Return the free nodes and ``own``: idle ones first, a guest's own before others, then by use."""
        taken = {node for guest in self.running for node in guest.nodes} - set(own)
        free = (node for node in range(len(self.hosts)) if node not in taken)
        return sorted(free, key=lambda node: (self.hosts[node].busy, node not in own, self.hosts[node].use))


def simulate(options: Options, series: Series, result: Result, rng: np.random.Generator) -> Result:
    """Run a simulation of parallel guests; fill ``result``."""
    queue = deque(_Guest(options.work, 0.0) for _ in range(options.guests))
    cluster = _Cluster(options, result, [Interval() for _ in range(options.nodes)], queue)
    bursts = Bursts(options.nodes, rng)
    series.tell(cluster.hosts, 0)
    cluster.decide(0.0)
    for at in range(series.use.shape[1]):
        for step in range(STEPS):
            use, ours, preemptions = bursts.window(series.use[:, at], options.switch, STEP)
            result.used += float(use.sum())
            result.offered += float(ours.sum())
            cluster.work(ours, preemptions, at * WINDOW + step * STEP)
        series.tell(cluster.hosts, at)
        cluster.decide((at + 1) * WINDOW)
    return result
