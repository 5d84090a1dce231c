"""Results of a simulated node: the object that `punctual simulate control --json` prints."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from punctual.control.adaptive import Adaptive
from punctual.sim.plants.admitted import Admitted
from punctual.sim.plants.scenario import Scenario

BAND: Final = 0.05
"""Part of the reference within which the expected progress counts as settled."""


class Row(NamedTuple):
    """A job at one time: the progress of the period that ends then, and the cap of the one that begins."""

    time: float
    job: str
    progress: float
    reference: float
    cap: float


@dataclass(slots=True)
class Ended:
    """One job's outcome. Times in s from 0."""

    id: str
    accepted: bool
    began: float | None = None
    """When it was accepted."""
    finish: float | None = None
    met: bool = False
    late_fraction: float = 0.0
    settling_periods: int | None = None
    """Periods on its line until its expected progress stayed there; while it learns, it has none. None: never."""
    overshoot: float | None = None
    """Largest excess of the expected progress over its line after reaching it, relative."""


@dataclass(slots=True)
class _Judged:
    """How a job's expected progress came to its line. Counted in periods on the line."""

    periods: int = 0
    outside: int = 0
    """The last period outside of the band."""
    reached: bool = False
    overshoot: float = 0.0
    before: float | None = None


@dataclass(slots=True)
class Result:
    """All results of a run."""

    scenario: Scenario
    rows: list[Row] = field(default_factory=list)
    ended: dict[str, Ended] = field(default_factory=dict)
    given: float = 0.0
    """Core periods at noise-free true cost while an offered job was refused ..."""
    refused: int = 0
    """... and the number of those periods."""
    promised: float = 0.0
    """Sum of the utilization of what is admitted, in the same periods."""
    _judged: dict[str, _Judged] = field(default_factory=dict)

    def judge(self, one: Admitted, expected: float) -> None:
        """Compare a period's expected progress with the line. A job that learns or has no line is not judged."""
        reference = one.reference
        learning = isinstance(one.governor, Adaptive) and one.governor.needed is None
        if reference <= 0.0 or learning or one.line.seconds < 10.0 * self.scenario.period:
            return
        found = self._judged.setdefault(one.job.id, _Judged())
        found.periods += 1
        away = expected / reference - 1.0
        if (found.before is not None and (found.before < 0.0) != (away < 0.0)) or abs(away) <= BAND:
            found.reached = True
        found.before = away
        if abs(away) > BAND:
            found.outside = found.periods
        if found.reached:
            found.overshoot = max(found.overshoot, away)

    def count(self, given: float, there: Sequence[Admitted], *, waiting: bool) -> None:
        """Count a period's use of the cores."""
        if not waiting:
            return
        self.refused += 1
        self.given += given
        needed = sum(one.line.units / one.line.seconds / one.job.gain for one in there if one.line.seconds > 0.0)
        self.promised += min(1.0, needed * self.scenario.period / self.scenario.usable)

    def end(self, one: Admitted, finish: float | None) -> None:
        """Record a job's end; None: it did not end."""
        due = one.accepted + one.job.deadline
        judged = self._judged.get(one.job.id)
        late = 0.0 if finish is None else max(0.0, finish - due) / one.job.deadline
        stayed = judged is not None and judged.outside < judged.periods
        self.ended[one.job.id] = Ended(
            one.job.id,
            accepted=True,
            began=one.accepted,
            finish=finish,
            met=finish is not None and finish <= due * (1.0 + 1e-12),
            late_fraction=late,
            settling_periods=judged.outside if judged is not None and stayed else None,
            overshoot=judged.overshoot if judged is not None and judged.reached else None,
        )

    @property
    def metrics(self) -> dict[str, Any]:
        """The ratios over all jobs; None where nothing was counted."""
        accepted = [one for one in self.ended.values() if one.accepted]
        late = [one.late_fraction for one in accepted if not one.met]
        ends = [one.finish for one in accepted if one.finish is not None]
        usable = self.scenario.usable
        return {
            "met_ratio": sum(one.met for one in accepted) / len(accepted) if accepted else None,
            "mean_late_fraction": sum(late) / len(late) if late else 0.0,
            "makespan": max(ends, default=None),
            "utilization": self.promised / self.refused if self.refused else None,
            "offered": len(self.ended),
            "accepted": len(accepted),
            "cpu_given": self.given / (usable * self.refused) if self.refused else None,
        }

    def document(self) -> dict[str, Any]:
        """Return the object of the contract."""
        order = [job.id for job in self.scenario.jobs]
        return {
            "jobs": [
                {
                    "id": one.id,
                    "accepted": one.accepted,
                    "finish": one.finish,
                    "met": one.met,
                    "late_fraction": one.late_fraction,
                    "settling_periods": one.settling_periods,
                    "overshoot": one.overshoot,
                }
                for one in (self.ended[name] for name in order)
            ],
            "metrics": self.metrics,
            "samples": [row._asdict() for row in self.rows],
        }
