"""The aligned pods of a node: which of their cgroup folders are steered, where to, and what is reported of them.

It belongs to the main thread; :mod:`punctual_agent.phases` steers. A grid is ordered on the leader's clock. It is
followed on this node's, by what is known of the leader's clock now. Where that is uncertain by more than a tenth of a
slice, where the grid has no begin, and where the grid is of an earlier leader, phases are found and not moved.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from punctual.control.clock_offset import UNCERTAIN, Offset
from punctual.wire import ClockReport, GridOrder, Order, PhaseReport
from punctual_agent.cgroup import Throttling
from punctual_agent.metrics import AgentMetrics
from punctual_agent.modes.application import ApplicationMode
from punctual_agent.operator_client import Answered
from punctual_agent.operator_clock import OperatorClock
from punctual_agent.phases import Key, Phases, Steered, Target
from punctual_agent.pod import Pod


@dataclass(slots=True)
class _Aligned:
    """One aligned pod."""

    grid: GridOrder | None = None
    """None: no leader has ordered one since the agent started."""
    epoch: int = 0
    """The leader that ordered it."""
    ran: frozenset[str] = frozenset()
    """The names of the folders in which processes ran in the last second."""
    throttled: float | None = None


class AlignedPods:
    """The aligned pods of one node."""

    def __init__(self, phases: Phases) -> None:
        self.phases = phases
        self._clock = OperatorClock()
        self._pods: dict[str, _Aligned] = {}
        self._offset: Offset | None = None
        self._known: dict[Key, Steered] = {}
        self._by_pod: dict[str, list[Steered]] = {}
        self._moves: dict[Key, int] = {}

    def hear(self, answered: Answered) -> None:
        """Learn of the leader's clock from an answer that was accepted."""
        self._clock.hear(answered)

    def tell(self, uid: str, order: Order, epoch: int) -> None:
        """Take an order for a pod."""
        if order.kind == "Application" and order.grid is not None:
            one = self._pods.setdefault(uid, _Aligned())
            one.grid, one.epoch = order.grid, epoch

    def forget(self, uid: str) -> None:
        """Forget a pod."""
        self._pods.pop(uid, None)

    def look(self, pod: Pod) -> None:
        """Note which folders of a pod ran since the last look, and how often they used up the cap."""
        mode, use = pod.mode, pod.held.use
        if not isinstance(mode, ApplicationMode) or not mode.aligned or use is None:
            self._pods.pop(pod.uid, None)
            return
        one = self._pods.setdefault(pod.uid, _Aligned())
        before, ran, parts = pod.counted or {}, set(), []
        for folder, now in use.folders.items():
            name, past = folder.removeprefix(pod.held.folder), before.get(folder, Throttling())
            periods = now.periods - past.periods
            if mode.holds(name) and periods > 0:
                ran.add(name)
                parts.append(min(max((now.throttled - past.throttled) / periods, 0.0), 1.0))
        one.ran, one.throttled = frozenset(ran), max(parts, default=None)

    def steer(self, pods: Iterable[Pod], now: float, *, may_write: bool) -> None:
        """Let the folders of aligned pods be steered. What is reported and measured after it is of the same moment."""
        self._offset = self._clock.at(now)
        targets: dict[Key, Target] = {}
        for pod in pods:
            one, mode = self._pods.get(pod.uid), pod.mode
            if one is None or not isinstance(mode, ApplicationMode) or mode.cap is None or not pod.held.found:
                continue
            begins, bound = self._aim(one)
            for folder in pod.held.caps:
                name = folder.removeprefix(pod.held.folder)
                if mode.holds(name):
                    targets[pod.uid, name] = Target(folder, mode.cap, begins, bound, pod.drift, name in one.ran)
        self.phases.follow(targets, may_write=may_write)
        self._known, self._by_pod = self.phases.known(), {}
        for (uid, _), steered in self._known.items():
            self._by_pod.setdefault(uid, []).append(steered)

    def _aim(self, one: _Aligned) -> tuple[float | None, float]:
        """Return when a pod's slices are to begin, and by how much that may be wrong."""
        known, grid = self._offset, one.grid
        if known is None or grid is None or grid.begins is None or one.epoch != self._clock.epoch:
            return None, 0.0
        if known.bound > UNCERTAIN * grid.slice:
            return None, 0.0
        return grid.begins - known.offset, known.bound

    def throttled(self, uid: str) -> float | None:
        """Return in which part of its last periods a pod used up its cap."""
        one = self._pods.get(uid)
        return None if one is None else one.throttled

    def report(self, uid: str, now: float) -> PhaseReport | None:
        """Return the phase of a pod on the leader's clock: of its folders, that which is furthest from the grid."""
        clock = self._offset
        found = [one for one in self._by_pod.get(uid, ()) if one.phase is not None]
        if clock is None or not found:
            return None
        worst = max(found, key=lambda one: abs(one.error or 0.0))
        phase = worst.phase
        assert phase is not None
        return PhaseReport(
            begins=phase.firing(worst.period, now) + clock.offset,
            half=phase.half + clock.bound,
            error=worst.error,
            age=max(now - phase.seen, 0.0),
            moves=sum(one.moves for one in found),
            failed=worst.failed,
        )

    def clock(self) -> ClockReport | None:
        """Return how well the leader's clock is known."""
        known = self._offset
        return None if known is None else ClockReport(bound=known.bound, drift=self._clock.drift)

    def measure(self, metrics: AgentMetrics) -> None:
        """Set the metrics."""
        known = self._offset
        metrics.aligned.set(len(self._pods))
        metrics.clock_bound.set(0.0 if known is None else known.bound)
        metrics.phase_error.set(max((abs(one.error or 0.0) for one in self._known.values()), default=0.0))
        for key, one in self._known.items():
            before = self._moves.get(key, 0)
            metrics.phase_moves.inc(one.moves - before if one.moves >= before else one.moves)  # it is steered anew
        self._moves = {key: one.moves for key, one in self._known.items()}
