"""What a unit costs, learned from how long chunks took: seconds = θ + χ·units, whatever a part of the chunks met.

Chunks are timed from the decision to create them to their end, so θ holds the start-up that planning needs. Some of
them tell nothing about the work (an image was pulled, a node was busy), and are mostly too slow, never too quick: a
mean, and least squares, would follow them. So first the line is found that the middle of all pairs lies on (Theil and
Sen; pairs that are far apart tell more and weigh more), which up to some 29 % outliers do not move far; then who is far
from it is left out, and the rest fitted by least squares of relative errors, as a chunk that is ten times as long is
ten times as uncertain. With hand-set χ or θ the other is found beside it.

Where an input is fetched for a chunk, the transfer is timed by itself: seconds = θcm + τ·units is the same line through
other times. θcm is seen in each of them, as what passes before the first byte, so chunks of one size tell them apart.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

KEPT: Final = 64
"""Chunks remembered."""
ENOUGH: Final = 5
"""Fewer say nothing."""
APART: Final = 1.5
"""Sizes must differ by this factor, a fifth of the chunks (one at least) aside on either side, to tell χ from θ."""
FAR: Final = 3.0
"""Spreads (of a normal error) from the line at which a chunk is left out ..."""
NEAR: Final = 0.02
"""... and a part of its time within which it never is."""
LEAST_CHI: Final = 1e-9
Floats = NDArray[np.float64]


class Timed(NamedTuple):
    """A chunk that ended well: so many units took so many seconds."""

    units: int
    seconds: float


class Fetched(NamedTuple):
    """The transfer of a chunk's input: that of so many units took so many seconds."""

    units: int
    opening: float
    """Of the seconds, those before the first byte came."""
    seconds: float


Seen = TypeVar("Seen", Timed, Fetched)


@dataclass(frozen=True, slots=True)
class Estimate:
    """θ in s, χ in s per unit. ``r2``: the part of the variance that the line explains; None: all are of one size."""

    theta: float
    chi: float
    samples: int
    outliers: int
    """Of those, how many were left out."""
    r2: float | None


def remember(seen: Sequence[Seen], new: Seen) -> tuple[Seen, ...]:
    """Return what is kept, oldest first: where it is too much, the oldest of the size there is most of goes.

    So a crowd of equals does not push out those few of another size that tell χ from θ.
    """
    kept: list[Seen] = list(seen)
    kept.append(new)
    while len(kept) > KEPT:
        sizes = [t.units.bit_length() for t in kept]
        most, _ = Counter(sizes).most_common(1)[0]
        del kept[sizes.index(most)]
    return tuple(kept)


def estimate(seen: Sequence[Timed], *, chi: float | None = None, theta: float | None = None) -> Estimate | None:
    """Return what the chunks tell; None where they are too few. ``chi``, ``theta``: known, by hand.

    Chunks of about one size cannot tell χ from θ: then θ is taken to be two seconds, or half of what the quickest took
    where that is less.
    """
    if len(seen) < ENOUGH:
        return None
    units = np.array([t.units for t in seen], dtype=np.float64)
    seconds = np.array([t.seconds for t in seen], dtype=np.float64)
    told_apart = _apart(units)
    if not told_apart and theta is None and chi is None:
        theta = min(2.0, 0.5 * float(seconds.min()))
    first = _middle(units, seconds, chi, theta)
    line = np.maximum(LEAST_CHI, first[0] + first[1] * units)
    error = np.abs(seconds - line) / line
    good = error <= max(NEAR, FAR * 1.4826 * float(np.median(error)))
    found = _least_squares(units[good], seconds[good], chi, theta)
    return Estimate(
        theta=found[0],
        chi=found[1],
        samples=len(seen),
        outliers=int(len(seen) - good.sum()),
        r2=_r2(units[good], seconds[good], found) if told_apart else None,
    )


def estimate_transfer(
    seen: Sequence[Fetched], *, tau: float | None = None, theta: float | None = None
) -> Estimate | None:
    """Return what transfers tell, τ as χ and θcm as θ; None where they are too few. ``tau``, ``theta``: known, by hand.

    With neither known θcm is the middle of what was seen before the first byte.
    """
    if tau is None and theta is None and seen:
        theta = float(np.median([f.opening for f in seen]))
    return estimate([Timed(f.units, f.seconds) for f in seen], chi=tau, theta=theta)


def speeds(profiles: Iterable[Mapping[str, Estimate]]) -> dict[str, float]:
    """Return how long a unit takes on each class of nodes, where on the quickest it takes 1.

    Each profile brings what it has learned by class. Classes are compared two at a time, by the profiles that know both
    (the median of their ratios, each counted as often as it has samples in the lesser known), with the class that is
    best known; a class that has none in common with that is taken to be like it.
    """
    known = [dict(classes) for classes in profiles]
    samples: dict[str, int] = {}
    for classes in known:
        for name, found in classes.items():
            samples[name] = samples.get(name, 0) + found.samples
    if not samples:
        return {}
    best = min(samples, key=lambda name: (-samples[name], name))
    out = {}
    for name in samples:
        both = [(c[name], c[best]) for c in known if name in c and best in c]
        ratios = np.array([mine.chi / other.chi for mine, other in both])
        weights = np.array([float(min(mine.samples, other.samples)) for mine, other in both])
        out[name] = _median(ratios, weights) if both else 1.0
    quickest = min(out.values())
    return {name: slow / quickest for name, slow in sorted(out.items())}


def _apart(units: Floats) -> bool:
    line, side = np.sort(units), max(1, units.size // 5)
    return bool(line[-1 - side] >= APART * line[side])


def _middle(units: Floats, seconds: Floats, chi: float | None, theta: float | None) -> tuple[float, float]:
    """Return θ and χ of the line in the middle."""
    if theta is None and chi is None:
        i, j = np.triu_indices(units.size, 1)
        apart = units[j] - units[i]
        i, j, apart = i[apart != 0.0], j[apart != 0.0], apart[apart != 0.0]
        chi = max(LEAST_CHI, _median((seconds[j] - seconds[i]) / apart, np.abs(apart)))
        theta = float(np.median(seconds - chi * units))
        if theta >= 0.0:
            return theta, chi
        theta, chi = 0.0, None
    if chi is None:
        assert theta is not None
        return theta, max(LEAST_CHI, _median((seconds - theta) / units, units))
    return max(0.0, float(np.median(seconds - chi * units)) if theta is None else theta), chi


def _least_squares(units: Floats, seconds: Floats, chi: float | None, theta: float | None) -> tuple[float, float]:
    """Return θ and χ with the least relative errors, squared."""
    weight = 1.0 / seconds
    if theta is None and chi is None:
        table = np.stack([weight, units * weight], axis=1)
        (theta, chi), *_ = np.linalg.lstsq(table, np.ones_like(units), rcond=None)
        if theta >= 0.0 and chi > 0.0:
            return float(theta), float(chi)
        theta, chi = (0.0, None) if theta < 0.0 else (None, LEAST_CHI)
    if chi is None:
        assert theta is not None
        part = units * weight
        return theta, max(LEAST_CHI, float((part * (1.0 - theta * weight)).sum() / (part**2).sum()))
    if theta is None:
        theta = max(0.0, float((weight * (1.0 - chi * units * weight)).sum() / (weight**2).sum()))
    return theta, chi


def _r2(units: Floats, seconds: Floats, found: tuple[float, float]) -> float:
    """Return which part of the relative variance is explained."""
    weight = 1.0 / seconds**2
    rest = float((weight * (seconds - found[0] - found[1] * units) ** 2).sum())
    mean = float((weight * seconds).sum() / weight.sum())
    spread = float((weight * (seconds - mean) ** 2).sum())
    return max(0.0, 1.0 - rest / spread) if spread > 0.0 else 0.0


def _median(values: Floats, weights: Floats) -> float:
    """Return the value with as much weight below as above it."""
    order = np.argsort(values, kind="stable")
    heap = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(heap, heap[-1] / 2)])
