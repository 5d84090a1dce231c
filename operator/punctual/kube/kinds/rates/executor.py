"""Carries out the actions of the control of target rates: set points for the agents, statuses, events."""

from typing import Final

from punctual import metric_names as names
from punctual import reasons
from punctual.kube import api
from punctual.kube.actors.tools import Tools
from punctual.kube.api.conditions import transition_times
from punctual.kube.api.resources import TARGET_RATES
from punctual.kube.cluster.events import Regarding
from punctual.kube.kinds.rates.records import rate_status
from punctual.kube.known.rates import KnownRate
from punctual.kube.known.store import metadata_of
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import PutStatus
from punctual.rates.model import Action, HoldPod, RateStatus, ReleasePod, WriteRate
from punctual.verdict import Verdict

QUIET: Final = {reasons.SETTLING, reasons.MEASURING, reasons.NO_PODS, reasons.COUNT_FELL, reasons.STEERING}
"""Reasons that come and go in normal operation: no events."""
GOOD: Final = {reasons.FEASIBLE, reasons.ON_TARGET, reasons.BALANCED, reasons.ALIGNED}
"""Reasons that are no warning."""


class RateExecutor:
    """Carries out actions for one term. ``begun``: the first step's actions are carried out."""

    def __init__(self, tools: Tools) -> None:
        self.begun = False
        self._tools = tools
        self._said: dict[str, tuple[str, ...]] = {}  # reasons of the conditions, by uid

    def perform(self, action: Action) -> None:
        """Carry out an action. Returns at once."""
        match action:
            case HoldPod():
                self._tools.set_points.put(action)
            case ReleasePod():
                self._tools.set_points.drop(action)
            case WriteRate(uid, status, urgent):
                if known := self._tools.directory.rates.get(uid):
                    self._write(known, status, urgent=urgent)

    async def flush(self) -> None:
        """Take in that the first step's actions are carried out. No status has to be written before others."""
        self.begun = True

    def forget(self, known: KnownRate) -> None:
        """Remove a TargetRate that is gone."""
        self._said.pop(known.uid, None)
        self._tools.metrics.forget_rate(known.namespace, known.name)
        self._tools.writer.forget(Key(TARGET_RATES, known.uid))

    def _write(self, known: KnownRate, status: RateStatus, *, urgent: bool) -> None:
        body = rate_status(known, status, epoch=self._tools.epoch, now=self._tools.now())
        known.term.status, known.term.transition_times = body, transition_times(body["conditions"])
        self._tools.metrics.rate(known.namespace, known.name, _numbers(status))
        write = PutStatus.of(TARGET_RATES, "TargetRate", metadata_of(known), body, urgent=urgent)
        self._tools.writer.submit(Key(TARGET_RATES, known.uid), write)
        verdicts = status.admitted, status.on_target, status.aligned
        before = self._said.get(known.uid, ("", "", ""))
        self._said[known.uid] = tuple(verdict.reason if verdict else "" for verdict in verdicts)
        for verdict, reason in zip(verdicts, before, strict=True):
            if verdict and verdict.reason != reason and verdict.reason not in QUIET:
                self._emit(known, verdict, good=verdict.reason in GOOD)

    def _emit(self, known: KnownRate, verdict: Verdict, *, good: bool) -> None:
        about = Regarding(api.API_VERSION, "TargetRate", known.namespace, known.name, known.uid)
        self._tools.recorder.emit(about, "Normal" if good else "Warning", verdict.reason, verdict.message)


def _numbers(status: RateStatus) -> dict[names.Metric, float | None]:
    """Return the metrics of a TargetRate."""
    held = status.on_target
    return {
        names.RATE_TARGET: status.target,
        names.RATE_RATIO: status.rate,
        names.RATE_ON_TARGET: None if held is None else float(held.status == "True"),
        names.RATE_SKEW: status.skew,
    }
