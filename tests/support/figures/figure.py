"""What a figure is: curves of points, each a simulation that is run for several seeds, and words on what came of it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, NamedTuple, Protocol

Numbers = Mapping[str, Any]


@dataclass(frozen=True)
class Size:
    """How much is run. ``stretch``: of 10⁶ time units a point, 4·10⁶ in chapter 7; ``every``: all points printed."""

    seeds: int
    stretch: float
    every: bool = False


REDUCED = Size(seeds=3, stretch=1.0)
FULL = Size(seeds=10, stretch=10.0, every=True)


class Sim(Protocol):
    """One point but for its seed; hashable, as figures share some."""

    def run(self, seed: int, size: Size) -> Numbers:
        """Return the point's numbers by name: floats, or lists of one length."""

    def weight(self, size: Size) -> float:
        """Return about how many seconds that takes."""


class Key(NamedTuple):
    """Where a point belongs: a panel of the figure, a curve in it, the abscissa."""

    panel: str
    curve: str
    x: float


class Found:
    """The points of a figure: for each the numbers of all seeds."""

    def __init__(self, points: Mapping[Key, Sequence[Numbers]]) -> None:
        self.points = dict(points)

    def mean(self, panel: str, curve: str, x: float, name: str = "rejected") -> float:
        """Return the mean over the seeds."""
        return fmean(numbers[name] for numbers in self.points[Key(panel, curve, x)])

    def xs(self, panel: str, curve: str) -> list[float]:
        """Return the abscissae of a curve, in order; empty: there is no such curve."""
        return sorted(key.x for key in self.points if key[:2] == (panel, curve))

    def line(self, panel: str, curve: str, name: str = "rejected") -> list[float]:
        """Return the means of a curve, in order."""
        return [self.mean(panel, curve, x, name) for x in self.xs(panel, curve)]

    def shared(self, curve: str) -> list[float]:
        """Return the abscissae that a curve has in all panels: means over others could not be compared."""
        panels = {key.panel for key in self.points if key.curve == curve}
        return sorted(set.intersection(*(set(self.xs(panel, curve)) for panel in panels)))

    def level(self, panel: str, curve: str, name: str = "rejected") -> float:
        """Return the mean of a curve over what it shares with other panels, in percent."""
        return 100 * fmean(self.mean(panel, curve, x, name) for x in self.shared(curve))

    def spread(self, panel: str, curve: str, name: str) -> tuple[list[float], list[float]]:
        """Return the least and the highest of the seeds, in order."""
        each = [[n[name] for n in self.points[Key(panel, curve, x)]] for x in self.xs(panel, curve)]
        return [min(values) for values in each], [max(values) for values in each]

    def over(self, panel: str, curve: str, other: str) -> list[float]:
        """Return by how many percentage points a curve refuses more than another, over what all panels share."""
        return [100 * (self.mean(panel, curve, x) - self.mean(panel, other, x)) for x in self.shared(curve)]

    def document(self) -> list[dict[str, Any]]:
        """Return it as JSON keeps it."""
        return [
            {**key._asdict(), **{name: [short(n[name]) for n in all_seeds] for name in all_seeds[0]}}
            for key, all_seeds in self.points.items()
        ]

    @classmethod
    def of(cls, document: Sequence[dict[str, Any]]) -> "Found":
        """Read what `document` wrote."""
        points = {}
        for each in document:
            key = Key(*(each[name] for name in Key._fields))
            names = [name for name in each if name not in Key._fields]
            seeds = len(each[names[0]])
            points[key] = [{name: each[name][seed] for name in names} for seed in range(seeds)]
        return cls(points)


def short(value: Any) -> Any:
    """Return numbers with five digits: what a picture and a sentence show."""
    return [short(v) for v in value] if isinstance(value, list) else float(f"{value:.5g}")


@dataclass(frozen=True)
class Figure:
    """A figure, or two that show two sides of the same runs.

    points      what is simulated, for a size
    words       what came of it, with its numbers: a sentence, and a table after an empty line
    draw        a matplotlib figure of it
    """

    name: str
    title: str
    parameters: str
    published: str
    points: Callable[[Size], dict[Key, Sim]]
    words: Callable[[Found], str]
    draw: Callable[[Found], Any]
    alt: str

    @property
    def time_units(self) -> float:
        """How long a point is simulated in the reduced form; a curve in chapter 7."""
        return 4e6 if self.name.startswith("7") else 1e6


def table(head: Sequence[str], rows: Sequence[Sequence[object]], *, form: str = "{:.1f}") -> str:
    """Return Markdown; the first column holds words, the others numbers."""
    lines = [list(head), ["---", *["---:"] * (len(head) - 1)]]
    lines += [
        [str(first), *(form.format(v) if isinstance(v, float) else str(v) for v in rest)] for first, *rest in rows
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(numbers: Sequence[float], form: str = ".1f") -> str:
    """Return the median of the seeds, and the least and the highest."""
    middle, low, high = (format(number, form) for number in (median(numbers), min(numbers), max(numbers)))
    return middle if low == high else f"{middle} ({low} to {high})"


def dump(document: Mapping[str, Any]) -> str:
    """Return JSON with one point a line: differences between runs can be read."""
    head = {name: value for name, value in document.items() if name != "points"}
    points = ",\n  ".join(json.dumps(point, ensure_ascii=False) for point in document["points"])
    return json.dumps(head, ensure_ascii=False, indent=1)[:-2] + f',\n "points": [\n  {points}\n ]\n}}\n'
