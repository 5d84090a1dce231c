"""Estimates the cost of a unit from the durations of chunks: seconds = θ + χ·units, robust against outliers.

Chunks are timed from the decision to create them to their end, so θ contains the start-up that planning needs. Some of
them are outliers (an image was pulled, a node was busy). Those are mostly too slow and never too fast, so they would
bias a mean or least squares. The first step is therefore a weighted median of the slopes of all pairs (Theil and Sen;
pairs that are far apart weigh more), which up to some 29 % outliers do not move far. Then chunks far from that line are
left out. The rest is fitted by least squares of relative errors, as a chunk that is ten times as long is ten times as
uncertain. If χ or θ is set by hand, only the other one is estimated.

If an input is fetched for a chunk, the transfer is timed separately: seconds = θcm + τ·units is the same line through
other times. θcm is visible in each transfer as the time before the first byte, so chunks of one size are enough.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

KEPT: Final = 64
"""Number of chunks kept."""
ENOUGH: Final = 5
"""Minimum number of chunks for an estimate."""
APART: Final = 1.5
"""Sizes must differ by this factor, without a fifth of the chunks (at least one) on either side, to separate χ from
θ."""
FAR: Final = 3.0
"""Spreads (of a normal error) from the line beyond which a chunk is left out ..."""
NEAR: Final = 0.02
"""... and the part of its time within which it is never left out."""
LEAST_CHI: Final = 1e-9
Floats = NDArray[np.float64]


class Timed(NamedTuple):
    """A successful chunk: its units and the seconds that they took."""

    units: int
    seconds: float


class Fetched(NamedTuple):
    """The transfer of a chunk's input: the units and the seconds that it took."""

    units: int
    opening: float
    """The part of the seconds before the first byte came."""
    seconds: float


Seen = TypeVar("Seen", Timed, Fetched)


@dataclass(frozen=True, slots=True)
class Estimate:
    """θ in s, χ in s per unit. ``r2``: share of the variance that the line explains; None: all sizes are equal."""

    theta: float
    chi: float
    samples: int
    outliers: int
    """Number of samples left out."""
    r2: float | None


def remember(seen: Sequence[Seen], new: Seen) -> tuple[Seen, ...]:
    """Return the samples to keep, oldest first: above the limit, the oldest of the most frequent size is dropped.

    So many chunks of one size do not displace the few of other sizes that separate χ from θ.
    """
    kept: list[Seen] = list(seen)
    kept.append(new)
    while len(kept) > KEPT:
        sizes = [t.units.bit_length() for t in kept]
        most, _ = Counter(sizes).most_common(1)[0]
        del kept[sizes.index(most)]
    return tuple(kept)


def estimate(seen: Sequence[Timed], *, chi: float | None = None, theta: float | None = None) -> Estimate | None:
    """Return the estimate from these chunks; None if they are too few. ``chi``, ``theta``: known, set by hand.

    Chunks of about one size cannot separate χ from θ: then θ is assumed to be two seconds, or half the time of the
    fastest chunk if that is less.
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
    """Return the estimate from transfers, τ as χ and θcm as θ; None: too few. ``tau``, ``theta``: set by hand.

    If neither is known, θcm is the median of the times before the first byte.
    """
    if tau is None and theta is None and seen:
        theta = float(np.median([f.opening for f in seen]))
    return estimate([Timed(f.units, f.seconds) for f in seen], chi=tau, theta=theta)


class ClassSpeed(NamedTuple):
    """The time of a unit on one class of nodes, relative to the pool's fastest class (1)."""

    slow: float
    """What plans take."""
    measured: float | None = None
    """The middle of the tenants' votes, without the limit; None: no tenant has compared this class with another."""
    tenants: tuple[str, ...] = ()
    """Those that have voted, in order of their names."""


def speeds(
    tenants: Mapping[str, Sequence[Mapping[str, Estimate]]],
    *,
    limit: float = math.inf,
    given: Mapping[str, float] | None = None,
) -> dict[str, ClassSpeed]:
    """Return the relative time of a unit on each class of nodes; 1 on the fastest class.

    Each tenant has profiles, and each profile has estimates by class. Classes are compared with the class that most
    tenants know. A tenant has one vote about a class, however many profiles it has: the median of their ratios, each
    weighted by the samples of the less known class. The middle of the votes counts, and of two the one that is closer
    to 1. So less than half of the tenants cannot make a class slower than others have found it. A class without a vote
    is assumed to be equal to the best-known one.

    ``limit``: no class is taken to be slower by what was measured. ``given``: what is said of classes by hand; it wins.
    """
    known: Counter[tuple[str, str]] = Counter()  # samples, by class and tenant
    for tenant, profiles in tenants.items():
        for profile in profiles:
            for name, found in profile.items():
                known[name, tenant] += found.samples
    voters = Counter(name for name, _ in known)
    samples = {name: sum(n for (of, _), n in known.items() if of == name) for name in voters}
    out: dict[str, ClassSpeed] = {}
    if samples:
        best = min(samples, key=lambda name: (-voters[name], -samples[name], name))
        found_by = {name: _votes(tenants, name, best) for name in samples}
        middles = {name: _nearest_middle(list(votes.values())) for name, votes in found_by.items()}
        quickest = min(middles.values())
        for name, votes in sorted(found_by.items()):
            slow = middles[name] / quickest
            told = () if len(samples) == 1 else tuple(sorted(votes))
            out[name] = ClassSpeed(min(slow, limit), slow if told else None, told)
    for name, slow in (given or {}).items():
        out[name] = out.get(name, ClassSpeed(1.0))._replace(slow=slow)
    return dict(sorted(out.items()))


def _votes(tenants: Mapping[str, Sequence[Mapping[str, Estimate]]], name: str, best: str) -> dict[str, float]:
    """Return by tenant how long a unit takes on a class, relative to another one, if it has a profile of both."""
    out = {}
    for tenant, profiles in tenants.items():
        both = [(p[name], p[best]) for p in profiles if name in p and best in p]
        if both:
            ratios = np.array([mine.chi / other.chi for mine, other in both])
            weights = np.array([float(min(mine.samples, other.samples)) for mine, other in both])
            out[tenant] = _median(ratios, weights)
    return out


def _nearest_middle(votes: list[float]) -> float:
    """Return the median, of two middle votes the one that is closer to 1 as a factor; 1 without votes."""
    votes.sort()
    middle = votes[(len(votes) - 1) // 2 : len(votes) // 2 + 1]
    return min(middle, key=lambda vote: abs(math.log(vote)), default=1.0)


def _apart(units: Floats) -> bool:
    line, side = np.sort(units), max(1, units.size // 5)
    return bool(line[-1 - side] >= APART * line[side])


def _middle(units: Floats, seconds: Floats, chi: float | None, theta: float | None) -> tuple[float, float]:
    """Return θ and χ of the median line."""
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
    """Return θ and χ with the least squares of relative errors."""
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
    """Return the share of the relative variance that is explained."""
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
