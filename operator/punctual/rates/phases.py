"""What agents report of the phases of an application's pods: whether its slices begin together, and are filled."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from punctual import reasons
from punctual.control.clock_offset import UNCERTAIN
from punctual.control.phase import FAILURES, TOLERANCE
from punctual.rates.model import Member, PhaseSeen, ReportedPod
from punctual.verdict import Verdict

PATIENCE: Final = 30.0
"""Seconds after which a pod is on the grid unless something is wrong."""
SILENT: Final = 15.0
"""Seconds without a report after which the phase of a pod is not known."""
MARGIN: Final = 1.5
"""So many times the tolerance of agents is still on the grid: their clock goes on between two looks."""
MEMORY: Final = 30.0
"""Seconds over which the part of periods in which a pod used up its slice is averaged."""
FILLED, FILLED_AGAIN = 0.5, 0.6
"""Slices are not filled below the first, and filled again from the second on."""


@dataclass(slots=True)
class _Phase:
    """The phase of one pod. ``off``: since when it is not on the grid, at first since it came."""

    off: float | None
    seen: PhaseSeen | None = None
    told: PhaseSeen | None = None
    """The last that was seen. An agent that begins again must search first."""
    clock: float | None = None
    heard: float | None = None
    """Its last report."""
    steered: bool = False
    """It was on the grid once."""
    filled: float = 1.0
    """Mean part of its periods in which it used up its slice."""
    unfilled: bool = False

    @property
    def tolerance(self) -> float:
        return MARGIN * max(TOLERANCE, self.clock or 0.0)

    def observe(self, at: float, seen: ReportedPod, clock: float | None, *, at_floor: bool) -> None:
        if at_floor:
            self._observe_at_floor(at, seen, clock)
            return
        past = 0.0 if self.heard is None else min(max(at - self.heard, 0.0), MEMORY)
        self.heard, self.seen, self.clock = at, seen.phase, clock
        self.told = seen.phase or self.told
        error = seen.phase and seen.phase.error
        if error is not None and abs(error) <= self.tolerance:
            self.off, self.steered = None, True
        elif self.off is None:
            self.off = at
        if seen.throttled is not None:
            self.filled += (seen.throttled - self.filled) * past / MEMORY
            self.unfilled = self.filled < (FILLED_AGAIN if self.unfilled else FILLED)

    def _observe_at_floor(self, at: float, seen: ReportedPod, clock: float | None) -> None:
        """Take in a report of a pod that hardly runs: that it is not on the grid, and fills no slices, tells nothing.

        It has all its patience when it runs again. How it filled its slices before was the shortage, not its program.
        """
        self.heard, self.clock, self.told = at, clock, seen.phase or self.told
        self.filled, self.unfilled = 1.0, False
        error = seen.phase and seen.phase.error
        if error is not None and abs(error) <= self.tolerance:
            self.seen, self.off, self.steered = seen.phase, None, True
        elif self.off is not None:
            self.off = at

    def is_off(self, now: float) -> bool:
        """Return whether it had its time and is not on the grid."""
        return self.off is not None and now - self.off > PATIENCE

    def is_new(self, now: float) -> bool:
        """Return whether it is not on the grid yet and still has time for it."""
        return not self.steered and not self.is_off(now)


@dataclass(slots=True)
class PodPhases:
    """The phases of an application's pods, by pod."""

    _pods: dict[str, _Phase] = field(default_factory=dict)
    _waited: float | None = None
    """Since when a decision waits for pods that are new. None: none does."""

    def select(self, pods: Iterable[str], now: float) -> None:
        """Take in which pods there are."""
        self._pods = {pod: self._pods.get(pod) or _Phase(now) for pod in pods}

    def restart(self, now: float) -> None:
        """Take in that the pods are to be on the grid at another place from now on."""
        self._pods, self._waited = {pod: _Phase(now) for pod in self._pods}, None

    def observe(self, at: float, seen: ReportedPod, clock: float | None, *, at_floor: bool = False) -> None:
        """Take in a pod's line of a report. ``clock``: the bound of its agent's clock, s."""
        if seen.pod in self._pods:
            self._pods[seen.pod].observe(at, seen, clock, at_floor=at_floor)

    def new(self, now: float) -> set[str]:
        """Return the pods that are not on the grid yet and still have time for it."""
        return {pod for pod, phase in self._pods.items() if phase.is_new(now)}

    def allow(self, now: float) -> bool:
        """Return whether to decide now: slices that do not meet yet tell nothing of the slice that is needed.

        A decision waits for new pods, for PATIENCE at most: there may be new ones all the time.
        """
        if self.new(now):
            self._waited = now if self._waited is None else self._waited
            if now - self._waited <= PATIENCE:
                return False
        self._waited = None
        return True

    def begins(self, pod: str) -> float | None:
        """Return when a period of a pod begins, as it was last told; None: it is not known."""
        return phase.told.begins if (phase := self._pods.get(pod)) and phase.told else None

    def half(self, pods: Iterable[str]) -> float:
        """Return by how much what `begins` says of pods may be wrong, s."""
        return max((phase.told.half for pod in pods if (phase := self._pods.get(pod)) and phase.told), default=0.0)

    def skew(self, pods: Iterable[str]) -> float | None:
        """Return the largest error of pods, s; None: none is known."""
        seen = [phase.seen for pod in pods if (phase := self._pods.get(pod))]
        return max((abs(s.error) for s in seen if s is not None and s.error is not None), default=None)

    def verdict(self, now: float, running: Iterable[Member], slice_: float, *, fills: bool) -> Verdict:
        """Return whether the slices, s, of all running pods begin on the grid.

        ``fills``: a pod that always runs uses its slice up; not if it has all its CPU.
        """
        pods = [(member, self._pods[member.pod]) for member in running if member.pod in self._pods]
        if not pods:
            return Verdict("Unknown", reasons.NO_PODS, "no selected pod runs")
        for check in CHECKS:
            for member, phase in pods:
                if found := check(member, phase, now, slice_):
                    return found
        if fills and (found := _not_filled(pods)):
            return found
        skew = 1e3 * (self.skew(member.pod for member, _ in pods) or 0.0)
        text = f"the slices of {_count(len(pods))} begin on the grid, with an error of at most {skew:.2g} ms"
        return Verdict("True", reasons.ALIGNED, text)


def _count(pods: int) -> str:
    return "1 pod" if pods == 1 else f"{pods} pods"


def _given_up(member: Member, phase: _Phase, now: float, slice_: float) -> Verdict | None:  # noqa: ARG001
    if phase.seen is None or phase.seen.failed < FAILURES:
        return None
    text = (
        f"the periods of pod {member.name} did not follow {phase.seen.failed} moves by the agent of node "
        f"{member.node}: see its log; it tries again after ten minutes"
    )
    return Verdict("False", reasons.PHASE_OFF, text)


def _uncertain(member: Member, phase: _Phase, now: float, slice_: float) -> Verdict | None:
    if phase.heard is None or now - phase.heard > SILENT or not phase.is_off(now):
        return None
    if phase.clock is None:
        text = (
            f"the agent of node {member.node} does not tell how well it knows the leader's clock, so pod {member.name} "
            "is not steered: upgrade it if its release is older than the operator's"
        )
        return Verdict("False", reasons.CLOCK_UNCERTAIN, text)
    if phase.clock <= UNCERTAIN * slice_:
        return None
    text = (
        f"the agent of node {member.node} knows the leader's clock to within {1e3 * phase.clock:.2g} ms, and a tenth "
        f"of the slice of pod {member.name} is {1e3 * UNCERTAIN * slice_:.2g} ms: see why its exchanges with the "
        "operator are slow, or allow a longer slice"
    )
    return Verdict("False", reasons.CLOCK_UNCERTAIN, text)


def _off(member: Member, phase: _Phase, now: float, slice_: float) -> Verdict | None:  # noqa: ARG001
    error = phase.seen and phase.seen.error
    if error is None or not phase.is_off(now):
        return None
    text = (
        f"the periods of pod {member.name} on node {member.node} have begun {1e3 * abs(error):.2g} ms "
        f"{'late' if error > 0.0 else 'early'} for more than {PATIENCE:.0f} s, and {1e3 * phase.tolerance:.2g} ms are "
        "allowed: look for another program that changes its CPU limit, and see the log of the node's agent"
    )
    return Verdict("False", reasons.PHASE_OFF, text)


def _unknown(member: Member, phase: _Phase, now: float, slice_: float) -> Verdict | None:  # noqa: ARG001
    silent = phase.heard is None or now - phase.heard > SILENT
    if phase.steered and not silent and not phase.is_off(now):
        return None
    if silent and (phase.steered or phase.is_off(now)):
        text = (
            f"the agent of node {member.node} does not report pod {member.name}: its slices stay where they are, so "
            "see whether the agent runs there"
        )
    elif phase.is_off(now):
        text = (
            f"the agent of node {member.node} has not found when the periods of pod {member.name} begin: they only "
            "begin while it runs, so see whether it uses any CPU"
        )
    else:
        text = f"pod {member.name} on node {member.node} is being moved to its place, for up to {PATIENCE:.0f} s"
    return Verdict("Unknown", reasons.STEERING, text)


def _not_filled(pods: list[tuple[Member, _Phase]]) -> Verdict | None:
    for member, phase in pods:
        if phase.unfilled:
            text = (
                f"pod {member.name} on node {member.node} used up its slice in only {phase.filled:.0%} of its periods: "
                "if its program waits by blocking, alignment brings nothing; else give the pod requests equal to its "
                "limits, so that other pods do not take its CPU"
            )
            return Verdict("False", reasons.SLICES_NOT_FILLED, text)
    return None


CHECKS: Final[tuple[Callable[[Member, _Phase, float, float], Verdict | None], ...]] = (
    _given_up,
    _uncertain,
    _off,
    _unknown,
)
"""The first that fails is said."""
