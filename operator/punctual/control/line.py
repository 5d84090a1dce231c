"""What an agent begins a chunk's line with: its end, the length of a sample, the floor of the cap, the model.

A line leads from no units at a chunk's creation to all of them shortly before its planned end. `follow` keeps it.
"""

from typing import Final, NamedTuple

from punctual.control.model import Model
from punctual.control.response import Response

FLOOR: Final = 0.05
"""Part of its processor that a chunk always has: a chunk that stood still could not tell how far it is."""
FLOOR_SHARED: Final = 0.01
"""The same where chunks share processors: all floors together must leave most of a processor."""
GUEST_FLOOR: Final = 0.01
"""CPU that a guest always has, cores: one that stood still could not answer an offer."""
SPARE: Final = 0.02
"""Part of the planned time by which a line ends before the planned end: noise would miss a line that ends there."""
SAMPLES: Final = 3.0
"""The same in samples, if that is more."""
UNITS: Final = 10.0
"""Units that a sample should have: with fewer, the number is mostly rounding ..."""
LONGEST: Final = 1 / 40
"""... and the largest part of the planned time that a sample may take."""
NOISE: Final = 0.05
"""Noise of a sample that is assumed until it is known."""


def sample_length(cpu_per_unit: float, cap: float, planned: float) -> float:
    """Return the seconds of a sample. ``planned``: seconds of the chunk; a unit takes ``cpu_per_unit`` CPU seconds."""
    return min(max(1.0, UNITS * cpu_per_unit / cap), max(1.0, LONGEST * planned), 60.0)


def spare(sample: float, planned: float) -> float:
    """Return the seconds by which a line ends before the planned end."""
    return max(SAMPLES * sample, SPARE * planned)


def floor(cap: float, ceiling: float | None) -> float:
    """Return the CPU that a chunk always has, cores. ``ceiling``: of a chunk that shares processors, else None."""
    return FLOOR * cap if ceiling is None else FLOOR_SHARED * ceiling


class FirstModel(NamedTuple):
    """The model that an agent begins with, in samples, and the noise of a sample."""

    model: Model
    noise: float
    learned: bool
    """False: it follows from the estimated cost of a unit."""


def first_model(
    own: Response | None, others: Response | None, cpu_per_unit: float, sample: float, *, learned: bool
) -> FirstModel:
    """Return what a chunk's pod has shown itself, or else what other chunks have shown, or else what the cost says.

    ``own``: what the pod's agent has seen, so that a new agent goes on with it; ``learned``: whether that was learned.
    What ``own`` says is left out if it cannot be true at the estimated CPU seconds of a unit.
    """
    if own is not None and own.believable(cpu_per_unit):
        return FirstModel(own.model(sample), own.noise_in(sample), learned)
    if others is not None:
        return FirstModel(others.model(sample), others.noise_in(sample), learned=True)
    return FirstModel(Model.first_order(0.0, sample / cpu_per_unit), NOISE, learned=False)
