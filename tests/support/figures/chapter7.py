"""Chapter 7: estimates that are wrong. N = 16, τ′ = 1, χ′ = 100, Avgσ = 200, one port; factors in [0.1, 2] per job."""

from dataclasses import dataclass, replace

import numpy as np

from figures.draw import COLOURS, legend, mark, sheet, styles
from figures.figure import Figure, Found, Key, Numbers, Sim, Size, table
from punctual.control.miss_ratio import GAINS
from punctual.scheduling.model.discipline import Discipline
from punctual.sim.options import Options
from punctual.sim.report import Result
from punctual.sim.run import simulate
from punctual.sim.trace import FaultLine, JobLine, Trace, jobs
from punctual.sim.workload import Workload
from punctual.theory.cost import Cost

N, COST, PERIOD, SET_POINT = 16, Cost(100.0, 1.0), 100_000.0, 0.05
LOW, HIGH = 0.1, 2.0
STEPS = tuple(round(0.15 * n, 2) for n in range(1, 11))
"""SystemLoads through which the load rises."""
OPEN, CLOSED = "without control", "with control"
IDEAL, WORST = "costs known", "worst case assumed"


def rising(seed: int, length: float, dc_ratio: float) -> Trace:
    """Return jobs whose load rises through STEPS, for ``length`` s each."""
    lines: list[JobLine] = []
    for n, load in enumerate(STEPS):
        part = workload(load, dc_ratio).draw(seed=1000 * seed + n, horizon=length)
        lines += [
            line.model_copy(update={"id": f"{n}-{line.id}", "arrival": line.arrival + n * length})
            for line in jobs(part)
        ]
    return Trace.of(lines)


def workload(load: float, dc_ratio: float) -> Workload:
    """Return the chapter's; its DCRatio is not in the text."""
    return Workload(cost=COST, processors=N, load=load, average=200.0, dc_ratio=dc_ratio)


def options(how: str, seed: int) -> Options:
    """Return the pool of a curve; the true costs of a job are the same in all."""
    base = Options(
        processors=N,
        cost=COST,
        discipline=Discipline(network="OnePort"),
        offers=False,
        actual=(LOW, HIGH),
        seed=seed,
        sample_period=PERIOD,
    )
    match how:
        case "without control":
            return replace(base, bound=1.0)
        case "with control":
            return replace(base, miss_set_point=SET_POINT)
        case "worst case assumed":
            return replace(base, cost=Cost(HIGH * COST.chi, HIGH * COST.tau), actual=(LOW / HIGH, 1.0))
        case _:
            return replace(base, actual=(1.0, 1.0))


def known(trace: Trace, seed: int) -> Trace:
    """Return the same jobs with the costs that they will turn out to have."""
    rng = np.random.default_rng(seed)  # as the simulation draws them
    lines = []
    for job in jobs(trace):
        tau, chi = rng.uniform(LOW, HIGH, 2).tolist()
        lines.append(job.model_copy(update={"tau": tau * COST.tau, "chi": chi * COST.chi}))
    return Trace.of(lines)


def _share(part: np.ndarray, whole: np.ndarray) -> list[float]:
    return (part / np.maximum(whole, 1)).tolist()


def _missed(trace: Trace, found: Result, length: float, count: int) -> list[float]:
    """Return which share of the accepted, by the time of their deadline, missed it."""
    due = {job.id: job.arrival + job.deadline for job in jobs(trace)}
    all_, missed = np.zeros(count), np.zeros(count)
    for job in found.jobs:
        at = min(count - 1, int(due[job.id] / length))
        all_[at] += 1
        missed[at] += not job.met
    return _share(missed, all_)


def _refused(found: Result, length: float, count: int) -> list[float]:
    asked, refused = np.zeros(count), np.zeros(count)
    for decision in found.decisions:
        at = int(decision.time / length)
        asked[at] += 1
        refused[at] += not decision.accepted
    return _share(refused, asked)


def _used(found: Result, length: float, count: int) -> list[float]:
    """Return the share of all processors' time that was sending or computing."""
    used = np.zeros(count)
    for chunk in found.chunks:
        for at in range(int(chunk.send_start / length), min(count, int(chunk.end / length) + 1)):
            used[at] += min(chunk.end, (at + 1) * length) - max(chunk.send_start, at * length)
    return (used / (N * length)).tolist()


@dataclass(frozen=True)
class Rising:
    """A load that rises; numbers by step of the load."""

    how: str
    dc_ratio: float

    def run(self, seed: int, size: Size) -> Numbers:
        """Simulate it."""
        length = 4e6 * size.stretch / len(STEPS)
        trace = rising(seed, length, self.dc_ratio)
        if self.how == IDEAL:
            trace = known(trace, seed)
        found = simulate(trace, options(self.how, seed))
        count = len(STEPS)
        return {
            "missed": _missed(trace, found, length, count),
            "rejected": _refused(found, length, count),
            "utilization": _used(found, length, count),
        }

    def weight(self, size: Size) -> float:
        """Guess."""
        return 20.0 * size.stretch


@dataclass(frozen=True)
class Failing:
    """A constant load; six of sixteen processors fail in the middle. ``seen``: whether the Pool is told."""

    how: str
    seen: bool

    def run(self, seed: int, size: Size) -> Numbers:
        """Simulate it; numbers by sampling period."""
        horizon = 4e6 * size.stretch
        trace = workload(1.0, 2.0).draw(seed=seed, horizon=horizon)
        fault = FaultLine(id="fault", kind="fault", arrival=horizon / 2, processors=tuple(range(6)))
        pool = replace(options(self.how, seed), silent_faults=not self.seen)
        found = simulate(Trace.of([*trace.lines, fault]), pool)
        return {"missed": _missed(trace, found, PERIOD, max(1, int(horizon / PERIOD)))}

    def weight(self, size: Size) -> float:
        """Guess."""
        return 20.0 * size.stretch


def _mean(found: Found, panel: str, curve: str, name: str) -> list[float]:
    return np.mean([n[name] for n in found.points[Key(panel, curve, 0)]], axis=0).tolist()


ALL = (OPEN, CLOSED, IDEAL, WORST)
RATIOS = (2.0, 4.0)
"""The text has no DCRatio: with 2 as many miss without control as published, with 4 as much is used with it."""


def _panel(dc_ratio: float) -> str:
    return f"DCRatio {dc_ratio:g}"


def _points_72(size: Size) -> dict[Key, Sim]:
    return {Key(_panel(dc), how, 0): Rising(how, dc) for dc in RATIOS for how in ALL}


def _words_72(found: Found) -> str:
    def mean(dc: float, how: str, name: str, steps: slice) -> float:
        return 100 * float(np.mean(_mean(found, _panel(dc), how, name)[steps]))

    light, heavy = slice(0, 2), slice(-3, None)
    head = (
        f"%; heavy load: {STEPS[-3]} to {STEPS[-1]}, light: {STEPS[0]} and {STEPS[1]}",
        *(f"{what}, heavy" for what in ("accepted that miss", "refused", "used")),
        "refused, light",
    )
    rows = [
        [
            f"{_panel(dc)}: {how}",
            *(mean(dc, how, name, heavy) for name in ("missed", "rejected", "utilization")),
            mean(dc, how, "rejected", light),
        ]
        for dc in RATIOS
        for how in ALL
    ]
    tight, loose = RATIOS
    return (
        f"with {_panel(loose)} as published with control, {mean(loose, CLOSED, 'missed', heavy):.0f} % miss and "
        f"{mean(loose, CLOSED, 'utilization', heavy):.0f} % are used; without it fewer miss, and as many as published "
        f"with {_panel(tight)}.\n\n{table(head, rows)}"
    )


def _draw_72(found: Found):
    figure, axes = sheet(2, 3, width=3.3, height=2.8, share=False)
    looks = styles(ALL)
    names = (
        ("missed", "(7.2) accepted that miss, share", 0.35),
        ("rejected", "(7.3) jobs refused, share", 0.75),
        ("utilization", "(7.4) processor time used, share", 1.0),
    )
    for row, dc in zip(axes, RATIOS, strict=True):
        for axis, (name, words, most) in zip(row, names, strict=True):
            for how, (colour, marker, _) in looks.items():
                each = np.array([n[name] for n in found.points[Key(_panel(dc), how, 0)]])
                axis.fill_between(STEPS, each.min(axis=0), each.max(axis=0), color=colour, alpha=0.12, linewidth=0)
                axis.plot(STEPS, each.mean(axis=0), color=colour, marker=marker, label=how)
            axis.set_ylim(0, most)
            axis.set_title(f"{words}, {_panel(dc)}")
        mark(row[0], SET_POINT, "set point 5 %")
        mark(row[0], 0.25, "published without control: 25 %")
        mark(row[2], 0.75, "published with control: 75 %")
    for axis in axes[-1]:
        axis.set_xlabel("SystemLoad, rising")
    legend(figure, axes)
    return figure


FAILING = {f"{how}, {'told' if seen else 'not told'}": (how, seen) for seen in (False, True) for how in (OPEN, CLOSED)}


def _points_75(size: Size) -> dict[Key, Sim]:
    return {Key("", name, 0): Failing(*what) for name, what in FAILING.items()}


def _words_75(found: Found) -> str:
    rows = []
    for name in FAILING:
        line = _mean(found, "", name, "missed")
        quarter = len(line) // 4
        parts = line[quarter : 2 * quarter], line[3 * quarter :]
        rows.append([name, *(100 * float(np.mean(part)) for part in parts)])
    return "\n\n" + table(("accepted that miss, %", "quarter before the failure", "last quarter"), rows)


def _draw_75(found: Found):
    figure, axes = sheet(1, 2, width=4.2, height=2.8, share=False)
    for axis, seen, words in zip(axes[0], (False, True), ("not told of the failure", "told of it"), strict=True):
        for name, colour, how in zip((OPEN, CLOSED), COLOURS, (OPEN, CLOSED), strict=False):
            each = np.array([n["missed"] for n in found.points[Key("", f"{how}, {'told' if seen else 'not told'}", 0)]])
            xs = np.arange(1, each.shape[1] + 1)
            axis.fill_between(xs, each.min(axis=0), each.max(axis=0), color=colour, alpha=0.12, linewidth=0)
            axis.plot(xs, each.mean(axis=0), color=colour, label=name)
        axis.axvline(each.shape[1] / 2, color="#999999", linestyle="--", linewidth=1)
        mark(axis, SET_POINT, "set point 5 %")
        if not seen:
            mark(axis, 0.6, "published without control: 60 %")
        axis.set_ylim(0, 1)
        axis.set_title(f"the Pool is {words}")
        axis.set_xlabel("sampling period")
    axes[0][0].set_ylabel("accepted that miss, share")
    legend(figure, axes)
    return figure


BASE = "N = 16, τ′ = 1, χ′ = 100, Avgσ = 200, factors uniform in [0.1, 2] per job, T_s = 100,000, set point 5 %"
FIGURES = (
    Figure(
        "7.2",
        "A load that rises (7.2, 7.3, 7.4)",
        f"{BASE}; DCRatio, the course of the load and the gains are not in the text: 2 and 4, {STEPS[0]} to "
        f"{STEPS[-1]} in ten equal steps, Kp = {GAINS.kp:.3g}, Ki = {GAINS.ki:.3g}",
        "without control 25 % miss under heavy load, with control 5 % at some 75 % utilization; refused: "
        "less than with known costs under light load, more under heavy load, far less than with the worst case assumed",
        _points_72,
        _words_72,
        _draw_72,
        "Missed, refused and used over a rising SystemLoad, without control, with it, with known and worst-case costs",
    ),
    Figure(
        "7.5",
        "Processors fail",
        f"{BASE}; SystemLoad 1; six of the 16 processors fail in the middle (40 % would be 6.4)",
        "without control 60 % miss from then on, with control the ratio returns to 5 % within a few periods",
        _points_75,
        _words_75,
        _draw_75,
        "Missed by sampling period, with a failure of 40 % of the processors in the middle",
    ),
)
