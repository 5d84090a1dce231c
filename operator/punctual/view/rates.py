"""TargetRates at a moment, read from the API server's objects, and why each is as it is.

This module does no I/O and draws nothing. The command line and the operator's page give the same explanation.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from punctual import reasons
from punctual.notation.duration import format_duration, parse_time
from punctual.scheduling.model.wording import some, span
from punctual.view.conditions import NOTHING, ConditionView, said

BALANCED: Final = "Balanced"
"""Stands in the place of a rate: the slices follow the load of the nodes' own work."""
SOON: Final = 10.0
"""Seconds within which the operator normally has looked at a TargetRate."""


@dataclass(frozen=True, slots=True)
class RateView:
    """A TargetRate, as its status describes it. Numbers are as the status writes them; empty: there is none."""

    uid: str
    namespace: str
    name: str
    pool: str
    created: float
    asked: str
    """``spec.rate``: per cent, or `Balanced`."""
    coscheduling: str
    target: str
    rate: str
    error: str
    load: float | None
    """Of the nodes' own work, tasks per CPU. None: it is not balanced with that, or the load is not known."""
    quota: str
    utilization: str
    period: float | None
    """Seconds."""
    offset: str
    skew: str
    pods: int
    current: bool
    """The operator has looked at the newest spec."""
    conditions: Mapping[str, ConditionView]

    @property
    def refused(self) -> bool:
        """Whether its pods are not held because it is refused."""
        return self.conditions.get("Admitted", NOTHING).status == "False"

    @property
    def _explains(self) -> ConditionView:
        """The condition that explains how it is: OnTarget, or Admitted if its pods are not held."""
        held = self.conditions.get("OnTarget")
        return self.conditions.get("Admitted", NOTHING) if held is None or self.refused else held

    @property
    def state(self) -> str:
        """The reason that explains how it is."""
        return self._explains.reason or "Waiting"

    @property
    def why(self) -> str:
        """The message of that reason."""
        return self._explains.message

    @property
    def aligned(self) -> str:
        """What its condition Aligned says: yes, or its reason; empty: it has none."""
        found = self.conditions.get("Aligned")
        return "" if found is None else "yes" if found.status == "True" else found.reason


def rate_of(body: Mapping[str, Any]) -> RateView:
    """Read a TargetRate."""
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    generation = meta.get("generation") or 0
    return RateView(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        pool=spec.get("pool") or "",
        created=parse_time(meta["creationTimestamp"]),
        asked=spec.get("rate") or "",
        coscheduling=spec.get("coscheduling") or "None",
        target=status.get("target") or "",
        rate=status.get("rate") or "",
        error=status.get("error") or "",
        load=status.get("load"),
        quota=status.get("quota") or "",
        utilization=status.get("utilization") or "",
        period=status.get("period"),
        offset=status.get("offset") or "",
        skew=status.get("skew") or "",
        pods=status.get("pods") or 0,
        current=(status.get("observedGeneration") or 0) >= generation,
        conditions={
            c["type"]: ConditionView(c["status"], c.get("reason") or "", c.get("message") or "")
            for c in status.get("conditions") or ()
        },
    )


_ON_TARGET: Final = {
    "True": "It is on target",
    "False": "It is not on target",
    "Unknown": "Whether it is on target is not known",
}
_ALIGNED: Final = {
    "True": "The slices of its pods begin at the same moments",
    "False": "The slices of its pods do not begin at the same moments",
    "Unknown": "Whether the slices of its pods begin at the same moments is not known",
}


def why_rate(rate: RateView, now: float) -> tuple[str, ...]:
    """Explain a TargetRate in sentences: one for each condition, and the numbers in force."""
    return tuple(_sentences(rate, now))


def _sentences(rate: RateView, now: float) -> Iterator[str]:
    admitted = rate.conditions.get("Admitted")
    if admitted is None:
        ago = max(0.0, now - rate.created)
        more = " see whether the operator runs." if ago > SOON else " this takes some seconds."
        yield f"The operator has not looked at it yet, {span(ago)} after its creation:{more}"
        return
    if rate.refused:
        yield said("It is refused, and its pods are not held", admitted.reason, admitted.message)
        return
    if admitted.reason != reasons.FEASIBLE:
        yield said("The last edit is not in force", admitted.reason, admitted.message)
    elif not rate.current:
        yield "The operator has not looked at the last edit yet."
    yield _held(rate)
    if on_target := rate.conditions.get("OnTarget"):
        yield said(_ON_TARGET[on_target.status], on_target.reason, on_target.message)
    yield from _aligned(rate)


def _held(rate: RateView) -> str:
    if not rate.target:
        return f"Its {some(rate.pods, 'pod')} are not held."
    pods = f"{some(rate.pods, 'pod')} in pool {rate.pool}"
    text = f"{pods} shall run at {rate.target} of the rate alone"
    if rate.asked == BALANCED:
        text = f"{pods} shall have the part of their CPU that is right for the load of their nodes' own work"
        text += "" if rate.load is None else f", {rate.load:g} tasks per CPU"
    on_target = rate.conditions.get("OnTarget")
    at_floor = on_target is not None and on_target.reason == reasons.MEMORY_SHORT
    if rate.utilization and rate.period and not at_floor:
        text += f": each gets {rate.utilization} of its CPU, in periods of {format_duration(rate.period)}"
    return f"{text}."


def _aligned(rate: RateView) -> Iterator[str]:
    aligned = rate.conditions.get("Aligned")
    if aligned is None:
        if rate.coscheduling == "Aligned":
            yield "Its slices are aligned when its rate alone is known."
        return
    what = _ALIGNED[aligned.status]
    if aligned.reason == reasons.SLICES_NOT_FILLED:
        what = "The slices of its pods are aligned, but not used up"
    yield said(what, aligned.reason, aligned.message)
    if rate.offset:
        yield f"They begin {rate.offset} after each begin of a period of the grid, which all nodes share."
