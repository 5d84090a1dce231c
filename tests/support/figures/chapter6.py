"""Chapter 6: fast admission. What it refuses, and how long a decision takes. No set-ups, one port."""

from contextlib import suppress
from dataclasses import dataclass
from math import inf
from statistics import fmean
from time import process_time

import contest
import numpy as np

from figures.draw import COLOURS, REFUSED, USED, curve, legend, sheet, styles
from figures.figure import Figure, Found, Key, Numbers, Sim, Size, cell, table
from punctual.benchmarks import admission
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.pool_spec import Admission
from punctual.sim.options import Options
from punctual.sim.run import _Run, simulate
from punctual.sim.trace import JobLine, Trace
from punctual.sim.workload import Workload
from punctual.theory.cost import Cost
from punctual.theory.execution_time import execution_time

COST, AVERAGE = Cost(1000.0, 1.0), 1000.0
EXACT, FAST, HYBRID = "the Pool, exact", "the Pool, fast", "the Pool, hybrid"
IIT_2, AC_FAST = "EDF-IIT-2 to the letter", "AC-FAST to the letter"
ADMISSIONS: dict[str, Admission] = {EXACT: "Exact", FAST: "Fast", HYBRID: "Hybrid"}


@dataclass(frozen=True)
class Refused:
    """Who is refused; of the letter's what is late counts as refused too."""

    test: str
    load: float
    dc_ratio: float
    processors: int = 256
    chi: float = 1000.0
    average: float = AVERAGE
    threshold: int = 300

    def run(self, seed: int, size: Size) -> Numbers:
        """Simulate it."""
        cost = Cost(self.chi, 1.0)
        workload = Workload(
            cost=cost, processors=self.processors, load=self.load, average=self.average, dc_ratio=self.dc_ratio
        )
        trace = workload.draw(seed=seed, horizon=1e6 * size.stretch)
        if self.test not in ADMISSIONS:
            literal = contest.exact if self.test == IIT_2 else contest.literal
            return {"rejected": literal(trace, self.processors, cost).lost}
        options = Options(
            processors=self.processors,
            cost=cost,
            discipline=Discipline(network="OnePort"),
            admission=ADMISSIONS[self.test],
            threshold=self.threshold,
            offers=False,
        )
        metrics = simulate(trace, options).metrics()
        assert metrics["miss_ratio"] == 0.0
        return {"rejected": metrics["reject_ratio"], "utilization": metrics["utilization"]}

    def weight(self, size: Size) -> float:
        """Guess."""
        return 2.0 * self.load * size.stretch * (1 + self.dc_ratio / 50)


def _loads(size: Size) -> list[float]:
    return [n / 10 for n in range(1, 11)] if size.every else [0.2, 0.6, 1.0]


def _points_610(size: Size) -> dict[Key, Sim]:
    return {
        Key("", test, load): Refused(test, load, 2.0) for test in (IIT_2, AC_FAST, EXACT, FAST) for load in _loads(size)
    }


def _points_617(size: Size) -> dict[Key, Sim]:
    return {Key("", test, load): Refused(test, load, 2.0) for test in ADMISSIONS for load in _loads(size)}


def _points_618(size: Size) -> dict[Key, Sim]:
    loads = [n / 2 for n in range(1, 11)] if size.every else [0.5, 1.0, 2.0]
    return {
        Key("", test, load): Refused(test, load, 60.0, processors=16, chi=100.0, average=200.0, threshold=50)
        for test in ADMISSIONS
        for load in loads
    }


def _table(found: Found) -> str:
    """Return what each test refuses and uses: medians of the seeds, the least and the highest."""
    tests = list(dict.fromkeys(key.curve for key in found.points))
    last = found.xs("", tests[0])[-1]

    def percent(test: str, x: float, name: str) -> list[float]:
        return [100 * numbers[name] for numbers in found.points[Key("", test, x)]]

    def mean(test: str) -> list[float]:
        return [fmean(loads) for loads in zip(*(percent(test, x, "rejected") for x in found.xs("", test)), strict=True)]

    head = "%", "refused, mean of the loads", f"refused at load {last:g}", f"used at load {last:g}"
    rows = []
    for test in tests:
        used = cell(percent(test, last, "utilization")) if test in ADMISSIONS else ""
        rows.append([test, cell(mean(test)), cell(percent(test, last, "rejected")), used])
    return table(head, rows)


def _words_610(found: Found) -> str:
    return f"Of the letter's jobs those that are late count as refused; EDF-IIT-1 is only cited.\n\n{_table(found)}"


def _words_hybrid(found: Found) -> str:
    hybrid, fast = found.over("", HYBRID, EXACT), found.over("", FAST, EXACT)
    return (
        f"HYBRID refuses at most {max(hybrid):.1f} points more than the exact test, FAST {max(fast):.1f}.\n\n"
        f"{_table(found)}"
    )


def _draw(found: Found):
    names = [name for name in (EXACT, FAST, HYBRID, IIT_2, AC_FAST) if found.xs("", name)]
    figure, axes = sheet(1, 2, width=3.8, height=2.9, share=False)
    looks = styles(names)
    for axis, (metric, words) in zip(axes[0], (REFUSED, USED), strict=True):
        for name in names:
            dash = ":" if "letter" in name else "--" if name == HYBRID else "-"
            if metric == "rejected" or name in ADMISSIONS:
                curve(axis, found, "", name, metric=metric, look=(*looks[name][:2], dash))
        axis.set_xlabel("SystemLoad")
        axis.set_ylabel(words)
        axis.set_ylim(bottom=0)
    legend(figure, axes, 3)
    return figure


# 6.12 to 6.16: how long a decision takes

SWITCH = 500
AFTER = (100, 300, 500, 600, 1000, 2000, 3000)
PRINTED = {
    "first 512": {
        "FAST-EDF-IIT": {300: 0.96, 1000: 4.84, 2000: 20.46, 3000: 48.87},
        "EDF-IIT-1": {300: 410.44, 1000: 1321.08, 2000: 3119.76, 3000: 6206.91},
        "EDF-IIT-2": {300: 151.32, 1000: 494.07, 2000: 988.95, 3000: 1494.91},
    },
    "after 512": {
        "FAST-EDF-IIT": {300: 1.71, 1000: 16.25, 2000: 67.24, 3000: 157.0},
        "EDF-IIT-1": {300: 850.01, 1000: 3006.01, 2000: 7536.32, 3000: 31173.86},
        "EDF-IIT-2": {300: 349.22, 1000: 1034.21, 2000: 2030.48, 3000: 3050.86},
    },
    "first 1024": {
        "FAST-EDF-IIT": {300: 1.01, 1000: 4.9, 2000: 21.1, 3000: 50.0},
        "EDF-IIT-2": {300: 363.29, 1000: 1545.51, 2000: 3089.6, 3000: 4923.91},
    },
    "after 1024": {},
}
"""Tables 6.2, 6.3 and 6.4, ms, on the author's machine."""


class _Enough(Exception):  # noqa: N818  no error
    """All that is to be measured is measured."""


class _Stamps:
    """Seconds of CPU at each call, as other programs on the machine do not count; raises `_Enough` at the last."""

    def __init__(self, count: float = inf) -> None:
        self.taken: list[float] = []
        self.count = count

    def __call__(self, *_: object) -> None:
        self.taken.append(process_time())
        if len(self.taken) >= self.count:
            raise _Enough


@dataclass(frozen=True)
class Decided:
    """A whole step of the Pool with a job that is admitted, when n others wait behind a job that holds all."""

    test: str
    processors: int
    most: int

    def run(self, seed: int, size: Size) -> Numbers:
        """Return ms of CPU of a decision when so many wait, and of all up to there; what records it included."""
        stamps = _Stamps(self.most + 2)
        running = _Run(_queue(self.processors, self.most + 1, seed), self._options(), stamps)
        with suppress(_Enough):  # how they are done then takes far longer, and is not asked
            running.result()
        assert [decision.accepted for decision in running.found.decisions] == [True] * (self.most + 2)
        ms = 1e3 * np.diff(stamps.taken)
        at = [n for n in AFTER if n <= self.most]
        return {
            "n": at,
            "after": [float(np.median(ms[n - 20 : n + 1])) for n in at],
            "first": [float(np.mean(ms[:n])) for n in at],
        }

    def _options(self) -> Options:
        return Options(
            processors=self.processors,
            cost=COST,
            discipline=Discipline(network="OnePort"),
            admission=ADMISSIONS[self.test],
            threshold=SWITCH,
            offers=False,
        )

    def weight(self, size: Size) -> float:
        """Guess."""
        return (0.03 if self.test == EXACT else 0.003) * self.most + (10 if self.test == HYBRID else 0)


def _queue(processors: int, count: int, seed: int) -> Trace:
    """Return a job that takes all processors for long, and others that come to random places of the line behind it."""
    rng = np.random.default_rng(seed)
    alone = execution_time(AVERAGE, processors, COST)
    huge = 10.0 * count
    lines = [JobLine(id="huge", arrival=0.0, load=huge * AVERAGE, deadline=1.001 * huge * alone)]
    loads = np.abs(rng.normal(AVERAGE, AVERAGE, count)) + 1.0
    dues = (huge + 4.0 * count * rng.uniform(1.0, 2.0, count)) * alone
    arrivals = alone * (1.0 + np.arange(count) / count)
    lines += [
        JobLine(id=f"j{n}", arrival=float(at), load=float(load), deadline=float(due))
        for n, (at, load, due) in enumerate(zip(arrivals, loads, dues, strict=True))
    ]
    return Trace.of(lines)


@dataclass(frozen=True)
class Literal:
    """The same of the paper's algorithms in plain Python, at some lengths of the line, the test alone."""

    test: str
    processors: int

    def run(self, seed: int, size: Size) -> Numbers:
        """Return ms; the mean of the first n is that of straight lines between the lengths that are measured."""
        measure, decisions = (admission.exact_literal, 3) if self.test == IIT_2 else (admission.fast_literal, 30)
        alone = execution_time(AVERAGE, self.processors, COST)
        at, after = [n for n in AFTER if n not in (500, 600)], []
        for n in at:
            stamps = _Stamps()  # measuring begins at the end of the first decision
            measure(admission.BenchQueue(n, self.processors, alone, 100.0), decisions, stamps)
            after.append(1e3 * float(np.median(np.diff(stamps.taken))))
        lengths, times = [0, *at], [0.0, *after]
        first = [float(np.trapezoid(times[: i + 1], lengths[: i + 1])) / n for i, n in enumerate(at, start=1)]
        return {"n": at, "after": after, "first": first}

    def weight(self, size: Size) -> float:
        """Guess."""
        return self.processors / 512 * (3.0 if self.test == IIT_2 else 0.5)


def _points_612(size: Size) -> dict[Key, Sim]:
    points: dict[Key, Sim] = {}
    for processors in (512, 1024):
        for test, most in ((EXACT, 3000 if size.every else 1000), (FAST, 3000), (HYBRID, 3000)):
            points[Key(str(processors), test, 0)] = Decided(test, processors, most)
        for test in (IIT_2, AC_FAST):
            points[Key(str(processors), test, 0)] = Literal(test, processors)
    return points


def _times(found: Found, processors: int, test: str, which: str) -> tuple[list[float], list[float]]:
    """Return lengths of the line, and ms: the median of the seeds, as a loaded machine delays single runs."""
    seeds = found.points[Key(str(processors), test, 0)]
    return list(seeds[0]["n"]), np.median([n[which] for n in seeds], axis=0).tolist()


def _words_612(found: Found) -> str:
    rows: list[list[object]] = []
    columns = [(512, 300), (512, 1000), (512, 3000), (1024, 3000)]
    for test in (EXACT, FAST, HYBRID, IIT_2, AC_FAST):
        row: list[object] = [test]
        for processors, n in columns:
            at, ms = _times(found, processors, test, "after")
            row.append(ms[at.index(n)] if n in at else "")
        rows.append(row)
    head = "ms of CPU", *(f"{n} wait, {processors} processors" for processors, n in columns)
    return (
        "whole steps of the Pool with what the simulation does beside, one port; the letter's are the tests "
        f"alone, in Python, EDF-IIT-2 without a port. The product's own numbers are in [benchmarks](benchmarks.md).\n\n"
        f"{table(head, rows, form='{:.3g}')}"
    )


def _draw_612(found: Found):
    figure, axes = sheet(2, 2, width=3.8, height=2.8, share=False)
    looks = styles((EXACT, FAST, HYBRID, IIT_2, AC_FAST))
    papers = {"FAST-EDF-IIT": "v", "EDF-IIT-1": "^", "EDF-IIT-2": "x"}
    for row, which in zip(axes, ("first", "after"), strict=True):
        for axis, processors in zip(row, (512, 1024), strict=True):
            for test, (colour, marker, _) in looks.items():
                dash = ":" if "letter" in test else "--" if test == HYBRID else "-"
                axis.plot(
                    *_times(found, processors, test, which), color=colour, marker=marker, linestyle=dash, label=test
                )
            for name, marker in papers.items():
                points = PRINTED[f"{which} {processors}"].get(name, {})
                how = {"color": "#777777", "marker": marker, "linestyle": "none", "label": f"published: {name}"}
                axis.plot(list(points), list(points.values()), **how)
            axis.axvline(SWITCH, color=COLOURS[2], linewidth=0.8, linestyle=":")
            axis.set_yscale("log")
            words = "mean of the first n" if which == "first" else "with n waiting"
            axis.set_title(f"{words}, {processors} processors")
            axis.set_xlabel("n")
        row[0].set_ylabel("ms for a decision")
    legend(figure, axes, 4)
    return figure


FIGURES = (
    Figure(
        "6.10",
        "What fast admission refuses",
        "no parameters in the text; ours: N = 256, τ = 1, χ = 1000, Avgσ = 1000, DCRatio 2, no set-ups",
        "EDF-IIT-2 refuses the least and uses the most, FAST a little more than it and less than EDF-IIT-1",
        _points_610,
        _words_610,
        _draw,
        "Refused and used over SystemLoad for exact and fast admission, ours and to the letter",
    ),
    Figure(
        "6.12",
        "How long a decision takes (6.12 to 6.16, tables 6.2 to 6.4)",
        f"N = 512 and 1024, τ = 1, χ = 1000; a huge job holds all, others are admitted; HYBRID switches at {SWITCH}",
        "FAST far below EDF-IIT-2, and hardly more on 1024 than on 512; HYBRID falls to FAST's beyond the switch",
        _points_612,
        _words_612,
        _draw_612,
        "Milliseconds of a decision over the length of the line on 512 and 1024 processors, beside the printed tables",
    ),
    Figure(
        "6.17",
        "HYBRID with a short line",
        "as 6.10; the switch is not in the text, ours at 300 waiting",
        "HYBRID is the same as EDF-IIT-2",
        _points_617,
        _words_hybrid,
        _draw,
        "Refused and used over SystemLoad for exact, fast and hybrid admission",
    ),
    Figure(
        "6.18",
        "HYBRID with a long line",
        "the text raises DCRatio and has five times the load, switch at 50; ours: N = 16, χ = 100, Avgσ = 200, DCRatio "
        "60, SystemLoad 0.5 to 2, in full size to 5",
        "HYBRID and EDF-IIT-2 alike, FAST refuses more; utilization saturates beyond load 1",
        _points_618,
        _words_hybrid,
        _draw,
        "Refused and used over SystemLoad up to 5 for exact, fast and hybrid admission",
    ),
)
