"""The model `slices`: ranks that wait for each other on nodes that give them slices of CPU, event by event."""

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, inf
from random import Random

from punctual.sim.coschedule.application import Application, Rank
from punctual.sim.coschedule.node import Node
from punctual.sim.coschedule.report import AppReport, NodeReport, SlicesReport
from punctual.sim.coschedule.rounding import TINY
from punctual.sim.coschedule.scenario import App, Slices

TOGETHER = {"aligned", "gang"}
"""Policies that have slices begin at one time on all nodes, but for an error."""
BUCKETS = {"bucket", "aligned"}
"""Policies with budgets for slices, as the kernel's quotas are: only running uses them."""


def simulate(scenario: Slices, seed: int = 0) -> SlicesReport:
    """Run a scenario; the same seed gives the same report."""
    return _Simulation(scenario, seed).run()


def phases(app: App, rng: Random) -> Sequence[float]:
    """Return where the slices of an application begin on its nodes, s: as given, together, or drawn."""
    if app.phases is not None:
        return app.phases
    if app.policy in TOGETHER:
        return [app.offset + rng.uniform(-app.error, app.error) for _ in app.nodes]
    return [rng.uniform(0.0, app.period) for _ in app.nodes]


class _Simulation:
    def __init__(self, scenario: Slices, seed: int) -> None:
        self.end = scenario.duration
        self.nodes = [Node(scenario.hogs, scenario.quantum) for _ in range(scenario.nodes)]
        self.applications = []
        for n, app in enumerate(scenario.apps):
            rng = Random(f"{seed} {n}")  # noqa: S311  dice, not secrets
            self.applications.append(Application(app, phases(app, rng)))
        self.ranks = [rank for application in self.applications for rank in application.ranks]
        for rank in self.ranks:
            self.nodes[rank.node].ranks.append(rank)
        for number, node in enumerate(self.nodes):
            node.begin(Random(f"{seed} node {number}"))  # noqa: S311
        self.heap: list[tuple[float, int, Callable[[float], None]]] = []
        self.events = 0
        """Events so far: of those at one time, the one that was expected first comes first."""

    def run(self) -> SlicesReport:
        """Process all events before the end."""
        for rank in self.ranks:
            self._begin(rank)
            rank.start()
        for node in self.nodes:
            self._choose(0.0, node)
        while self.heap and self.heap[0][0] < self.end:
            at, _, happen = heapq.heappop(self.heap)
            happen(at)
        for node in self.nodes:
            self._settle(self.end, node)
        return self._report()

    def _expect(self, at: float, happen: Callable[[float], None]) -> None:
        self.events += 1
        heapq.heappush(self.heap, (at, self.events, happen))

    def _begin(self, rank: Rank) -> None:
        """Give a rank what it has at time 0: a full budget, or the window that is open then."""
        app = rank.application.app
        if app.policy == "share" or (app.policy not in BUCKETS and app.period - app.slice <= TINY):
            rank.budget = inf
            return
        rank.slices = ceil(-rank.phase / app.period - TINY)
        if app.policy in BUCKETS:
            rank.budget = app.slice
        elif (close := rank.phase + (rank.slices - 1) * app.period + app.slice) > 0.0:
            rank.budget = inf
            self._expect(close, partial(self._close, rank))
        self._expect_slice(rank)

    def _expect_slice(self, rank: Rank) -> None:
        at = rank.phase + rank.slices * rank.application.app.period
        self._expect(max(at, 0.0), partial(self._open, rank))

    def _open(self, rank: Rank, at: float) -> None:
        """Begin a slice: fill a budget, or open a window."""
        node, app = self.nodes[rank.node], rank.application.app
        self._settle(at, node)
        rank.slices += 1
        self._expect_slice(rank)
        rank.budget = app.slice
        if app.policy not in BUCKETS:
            rank.budget = inf
            self._expect(at + app.slice, partial(self._close, rank))
        self._choose(at, node)

    def _close(self, rank: Rank, at: float) -> None:
        """End a window."""
        node = self.nodes[rank.node]
        self._settle(at, node)
        rank.budget = 0.0
        self._choose(at, node)

    def _start(self, rank: Rank, at: float) -> None:
        """Begin an iteration."""
        node = self.nodes[rank.node]
        self._settle(at, node)
        node.start(rank)
        self._choose(at, node)

    def _settle(self, at: float, node: Node) -> None:
        if (sent := node.settle(at)) is not None:
            application = sent.application
            for rank in application.ready(sent):
                self._expect(at + application.app.latency, partial(self._start, rank))

    def _choose(self, at: float, node: Node) -> None:
        if (until := node.choose(at)) < inf:
            self._expect(until, partial(self._look, node, node.version))

    def _look(self, node: Node, version: int, at: float) -> None:
        """Find a rank that has done its work, or used its budget or turn."""
        if node.version == version:
            self._settle(at, node)
            self._choose(at, node)

    def _report(self) -> SlicesReport:
        end = self.end
        apps = []
        for application in self.applications:
            app, ranks = application.app, application.ranks
            used = sum(rank.used for rank in ranks)
            iterations = min(rank.done for rank in ranks)
            apps.append(
                AppReport(
                    id=app.id,
                    rate=iterations * app.alone / end,
                    iterations=iterations,
                    cpu=used / len(ranks) / end,
                    spun=sum(rank.spun for rank in ranks) / used if used else 0.0,
                    overlap=application.together(end) / end,
                )
            )
        used_on = [sum(rank.used for rank in node.ranks) for node in self.nodes]
        return SlicesReport(apps, [NodeReport(n, 1.0 - used / end) for n, used in enumerate(used_on)])
