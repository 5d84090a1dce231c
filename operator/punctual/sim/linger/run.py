"""Runs guests on the nodes of a cluster, two seconds by two seconds (Ryu 2001, 4.2).

Each node has at most one guest. The number of guests is constant: when one is done, another one joins the queue. A
guest that moves does nothing for a while, and occupies both nodes. A guest that goes back to the queue leaves its node
while it waits there; the paper does not say how, but only so ImmediateEviction and PauseAndMigrate get the same, as
published. Hosts always run before guests.

A divisible guest is a range of work. It begins on one node. While no guest waits, a free node takes a part of the
largest range, so a guest can be on many nodes at once.
"""

from collections import deque
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from punctual.linger.cost import Move
from punctual.linger.episode import Interval
from punctual.linger.policy import decide, lingers
from punctual.sim.linger import parallel
from punctual.sim.linger.bursts import WINDOW, Bursts, Floats
from punctual.sim.linger.hosts import Series
from punctual.sim.linger.options import LEAST, Options
from punctual.sim.linger.report import Result


@dataclass(slots=True)
class _Guest:
    submitted: float
    began: float | None = None
    """Its first start."""
    parts: int = 1
    """Those that are not done."""
    ended: float = 0.0
    """End of the last of the others."""


@dataclass(slots=True)
class _Part:
    """A guest, or a part of a divisible one."""

    guest: _Guest
    left: float
    """CPU seconds."""


@dataclass(slots=True)
class _Node:
    hosts: Interval = field(default_factory=Interval)
    part: _Part | None = None
    paused: bool = False
    arrives: float = 0.0
    """Seconds until the guest that moves here goes on."""
    leaves: float = 0.0
    """Seconds for which a guest that moves away still occupies the node."""

    @property
    def free(self) -> bool:
        return self.part is None and self.leaves <= 0.0

    @property
    def speed(self) -> float:
        return 1.0 - self.hosts.use


@dataclass(slots=True)
class _Cluster:
    options: Options
    result: Result
    nodes: list[_Node]
    queue: deque[_Part]

    def work(self, use: Floats, ours: Floats, preemptions: Floats, now: float) -> None:
        """Let guests run for a window. By node: CPU of hosts, CPU for a guest, and preemptions of it."""
        self.result.used += float(use.sum())
        self.result.offered += float(ours.sum())
        self.result.states["queued"] += WINDOW * len(self.queue)
        for node, offered, preempted in zip(self.nodes, ours.tolist(), preemptions.tolist(), strict=True):
            node.leaves = max(0.0, node.leaves - WINDOW)
            if node.part is None:
                continue
            moving = min(node.arrives, WINDOW)
            node.arrives -= moving
            state = "paused" if node.paused else "lingering" if node.hosts.busy else "running"
            self.result.states["moving"] += moving
            self.result.states[state] += WINDOW - moving
            if not node.paused and moving < WINDOW:
                self._run(node, node.part, offered, preempted, now=now, rest=1.0 - moving / WINDOW)

    def _run(self, node: _Node, part: _Part, offered: float, preempted: float, *, now: float, rest: float) -> None:
        """Let a guest run in the last ``rest`` of a window, or until it is done."""
        done = min(offered * rest, part.left)
        ran = rest * (done / (offered * rest) if offered > 0.0 else 1.0)
        part.left -= done
        self.result.work += done
        self.result.delay += preempted * ran * self.options.switch
        if part.left > 0.0:
            return
        node.part = None
        self._end(part.guest, now + WINDOW * (1.0 - rest + ran))

    def _end(self, guest: _Guest, at: float) -> None:
        """Count a part as done, and with the last one the guest."""
        guest.parts -= 1
        guest.ended = max(guest.ended, at)
        if guest.parts > 0:
            return
        assert guest.began is not None
        self.result.completions.append(guest.ended - guest.submitted)
        self.result.executions.append(guest.ended - guest.began)
        if not self.options.batch:
            self.queue.append(_Part(_Guest(guest.ended), self.options.work))

    def decide(self, now: float) -> None:
        """Move, pause and place guests, at the end of a window."""
        for node in self.nodes:
            if node.part is not None and node.arrives <= 0.0:
                self._decide_one(node, node.part)
        while self.queue and (place := self._place()) is not None:
            part = self.queue.popleft()
            place.part = part
            part.guest.began = now if part.guest.began is None else part.guest.began
        if self.options.divisible:
            while not self.queue and (place := self._place()) is not None and self._share(place):
                pass

    def _decide_one(self, node: _Node, part: _Part) -> None:
        policy = self.options.policy
        busy = node.hosts.age if node.hosts.busy else None
        goal = self._idle() if busy is not None else None
        move = None
        if goal is not None:
            move = Move(node.speed, goal.speed, self.options.pause, left=part.left)
        step = decide(policy, busy, move, pause=self.options.hold).step
        node.paused = step == "Pause"
        if step == "Move" and goal is not None:
            self.result.migrations += 1
            self.result.lost += self.options.pause
            node.part, node.leaves = None, self.options.pause
            goal.part, goal.arrives, goal.paused = part, self.options.pause, False
        elif step == "Queue":
            self.result.evictions += 1
            node.part, node.leaves = None, self.options.pause
            self.queue.append(part)

    def _share(self, place: _Node) -> bool:
        """Let a free node take a part of the largest range that runs, so that both end together. False: none pays."""
        running = [(node.part.left, node) for node in self.nodes if node.part is not None and not node.paused]
        left, node = max(running, key=lambda each: each[0], default=(0.0, place))
        taken = left * place.speed / (place.speed + node.speed) if place.speed > 0.0 else 0.0
        if node.part is None or taken < LEAST * self.options.pause:
            return False
        node.part.left -= taken
        node.part.guest.parts += 1
        place.part, place.arrives, place.paused = _Part(node.part.guest, taken), self.options.pause, False
        self.result.parts += 1
        return True

    def _idle(self) -> _Node | None:
        """Return the least used idle node that is free."""
        return min((n for n in self.nodes if n.free and not n.hosts.busy), key=lambda n: n.hosts.use, default=None)

    def _place(self) -> _Node | None:
        """Return the node for the next guest of the queue; None: there is none."""
        idle = self._idle()
        if idle is not None or not lingers(self.options.policy):
            return idle
        return min((n for n in self.nodes if n.free), key=lambda n: n.hosts.use, default=None)


def simulate(options: Options, *, seed: int = 0) -> Result:
    """Run a simulation."""
    rng = np.random.default_rng(seed)
    windows = max(1, ceil(options.horizon / WINDOW))
    series: Series = options.hosts.draw(options.nodes, windows, rng)
    result = Result(options.policy, windows * WINDOW, options.nodes, idle=float(1.0 - series.busy.mean()))
    if options.parallel > 1:
        return parallel.simulate(options, series, result, rng)
    queue = deque(_Part(_Guest(0.0), options.work) for _ in range(options.guests))
    cluster = _Cluster(options, result, [_Node() for _ in range(options.nodes)], queue)
    bursts = Bursts(options.nodes, rng)
    series.tell((node.hosts for node in cluster.nodes), 0)
    cluster.decide(0.0)
    for at in range(windows):
        cluster.work(*bursts.window(series.use[:, at], options.switch), at * WINDOW)
        series.tell((node.hosts for node in cluster.nodes), at)
        cluster.decide((at + 1) * WINDOW)
        if options.batch and len(result.completions) == options.guests:
            result.seconds = (at + 1) * WINDOW
            break
    return result
