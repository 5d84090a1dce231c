"""What the ended units of a Job have taken, each in a pod of its own: from that follows what those that are left take.

A pod of one unit tells no pace while it runs, so its job's pace is the mean of the units that have ended. It is a mean,
and of all of them, because the units of a Job differ and a plan needs their sum. The longest one is left out: a single
pod that waited, or met a slow moment of its node, says nothing of the others. As many units as the job has processors
must have ended, because those that end first are the fast ones. Of a start-up, waits do not count
(:mod:`punctual.scheduling.engine.measurements`).

The job's status holds two samples: the longest unit alone, and all others together.
"""

import math
from collections.abc import Sequence
from typing import Final

from punctual.control.cost_estimation import ENOUGH
from punctual.scheduling.model.job import PilotSample

STEP: Final = 0.05
"""A slowdown is a multiple of this: a mean that moves a little changes no plan, and units a little slower are noise."""
USUAL: Final = 2.0
"""A start-up is usual up to this factor above the least one of its job."""


def with_one_more(samples: Sequence[PilotSample], seconds: float) -> tuple[PilotSample, ...]:
    """Return the samples with that of another unit. Pilots of one unit may be among them."""
    every = [*samples, PilotSample(1, round(seconds, 3))]
    longest = max(sample.seconds for sample in every if sample.units == 1)
    units, total = sum(sample.units for sample in every) - 1, sum(sample.seconds for sample in every) - longest
    others = (PilotSample(units, round(total, 3)),) if units else ()
    return (PilotSample(1, longest), *others)


def mean(samples: Sequence[PilotSample], processors: int) -> float | None:
    """Return what a unit takes, start-up included, without the longest one; None: too few have ended.

    ``processors``: those that the job is promised.
    """
    units = sum(sample.units for sample in samples)
    if units < max(ENOUGH, processors):
        return None
    longest = max((sample.seconds for sample in samples if sample.units == 1), default=0.0)
    return (sum(sample.seconds for sample in samples) - longest) / (units - 1)


def slowdown(unit: float, expected: float) -> float:
    """Return how many times as long as expected units take, at least 1: promises do not count on faster ones."""
    return max(1.0, 1.0 + STEP * math.floor((unit / expected - 1.0) / STEP + 1e-9))
