"""What the experiment on aligned slices has to show, in numbers, from its points. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median, quantiles
from typing import NamedTuple

from lib.testbed import Json

TICK = 4.0
"""ms of a kernel with HZ = 250: a slice begins with a tick."""


class Figure(NamedTuple):
    """A number and the bounds within which it is accepted; None: there is none."""

    number: str
    what: str
    value: float
    least: float | None
    most: float | None = None
    digits: int = 2


def figures(found: Json) -> Iterator[Figure]:
    """Yield all figures for which there are points. Their numbers are those of the issue."""
    programs = found["programs"]
    yield from _ratios(programs)
    for name, points in found.get("sweep", {}).items():
        least = 1.3 if name == "spin, 5 ms" else None
        yield Figure("A3", f"{name}: in step ÷ mean over ten phases", over_the_mean(points), least)
    aligned = [block["aligned"] for one in programs.values() for block in one["runs"]]
    yield Figure("A7", "own work's share, aligned less uncoordinated", _more(programs, "local"), -0.02, digits=3)
    if waits := found.get("interactive"):
        for length, arms in waits.items():
            more = _median(arms["aligned"]) - _median(arms["uncoordinated"])
            what = f"wait of an interactive program beside slices of {length}, aligned less uncoordinated, ms"
            yield Figure("A8", what, more, None, 5.0)
    yield Figure("A9", "error of the phase, p99, ms", _p([abs(one["skew"]) for one in aligned], 99), None, 0.5)
    if starts := [start for one in aligned for start in one["starts"]]:
        yield Figure("A10", "start of a rank after its slice's begin, p50, ms", median(starts), None, TICK / 2 + 0.5)
        yield Figure("A10", "the same, p95", _p(starts, 95), None, TICK + 0.5)
    yield Figure("A11", "an agent's CPU, aligned less holding nothing, cores", _more(programs, "agent"), None, 0.002, 4)
    if killed := found.get("killed"):
        ratio = killed["after"]["rate"] / killed["before"]["rate"]
        yield Figure("A12", "rate in the minute after an agent was killed ÷ before", ratio, 0.95)
    if moved := found.get("takeover"):
        yield Figure("A13", "move of a phase by a takeover, ms", max(map(abs, moved)), None, 1.0)


def _ratios(programs: Json) -> Iterator[Figure]:
    """Yield the ratios of rates."""
    for number, name, arm, least, most in (
        ("A1", "spin, 0.2 ms", "uncoordinated", 1.5, None),
        ("A1", "spin, 1 ms", "uncoordinated", 1.5, None),
        ("A2", "spin, 1 ms", "apart", 2.0, None),
        ("A2", "spin, 5 ms", "apart", 2.0, None),
        ("A4", "spin, 0.2 ms", "none", 1.6, None),
        ("A4", "spin, 1 ms", "none", 1.3, None),
        ("A4", "spin, 5 ms", "none", 1.03, None),
        ("A4", "spin, 20 ms", "none", 1.0, None),
        *(("A5", f"block, {grain} ms", "uncoordinated", 0.97, 1.03) for grain in ("0.2", "1", "5", "20")),
        ("A6", "Open MPI, 2 ms", "uncoordinated", 1.3, None),
        ("A6", "Open MPI, 2 ms", "none", 1.15, None),
    ):
        if name in programs:
            value = programs[name]["ratios"][arm]["median"]
            yield Figure(number, f"{name}: aligned ÷ {arm}", value, least, most)


def over_the_mean(points: list[list[float]]) -> float:
    """Return the rate without a difference of phases over the mean of all differences."""
    return points[0][1] / fmean(rate for _, rate in points)


def _more(programs: Json, what: str) -> float:
    """Return by how much more of something aligned runs have than uncoordinated ones, the median of all blocks."""
    blocks = (block for one in programs.values() for block in one["runs"])
    return float(median(block["aligned"][what] - block["uncoordinated"][what] for block in blocks))


def _median(values: list[float | None]) -> float:
    return median(value for value in values if value is not None)


def _p(values: list[float], part: int) -> float:
    return quantiles(values, n=100, method="inclusive")[part - 1] if len(values) > 1 else values[0]
