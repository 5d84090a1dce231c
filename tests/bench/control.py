"""Feedback control against the published one: prints JSON.

    tests/bench/control.py [--runs 10] [--plants 1000] [--seed 0] [--processes 2] [--markdown FILE] [PART …]

Parts:
    node     the paper's experiments (tests/support/paper_node.py has the scenarios), for each control: medians of the
             runs with the least and the highest; lateness over all late jobs of all runs
    steps    steps of random plants (a 0 to 0.95, b over two decades, delay 0 to 2, noise 0 and 5 %), with and without
             a model
    times    the search for gains, one tick of a chunk, and a node that is suddenly half as fast

--markdown writes the tables of the parts into a page, between their marks.
"""

import argparse
import json
import os
import random
import statistics
import sys
import timeit
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import numpy as np
from marks import put
from paper_node import SETTINGS, outcome

from punctual.control.adaptive import Adaptive
from punctual.control.follow import Line
from punctual.control.governor import Sample
from punctual.control.model import Model
from punctual.control.tuning import tune
from punctual.sim.plants.regimes import searched

CONTROLS = {
    "adaptive": {"control": "adaptive"},
    "adaptive_need_first": {"control": "adaptive", "order": "need"},
    "adaptive_as_printed": {"control": "adaptive", "lines": "deadline"},
    "adaptive_as_printed_need_first": {"control": "adaptive", "lines": "deadline", "order": "need"},
    "adaptive_no_loan": {"control": "adaptive", "lend": False},
    "adaptive_no_loan_need_first": {"control": "adaptive", "lend": False, "order": "need"},
    "static": {"control": "static"},
    "none": {"control": "none"},
    "published": {"control": "published"},
    "published_as_printed": {"control": "published", "lines": "deadline"},
    "edf_cores": {"control": "edf-cores"},
}
PERIODS, LEARNED, BAND = 200, 20, 0.05
RANGES = (0.0, 0.3, 0.6, 0.8, 0.9, 0.951)


def run(job):
    """Run a scenario; for another process."""
    setting, control, seed = job
    return outcome(setting, seed, **CONTROLS[control])


def middle(values):
    """Return median, least and highest of what is known; None: nothing is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return [round(float(one), 4) for one in (statistics.median(known), min(known), max(known))]


def node(runs, first, processes):
    """Return the paper's experiments."""
    jobs = [(s, c, first + seed) for s in SETTINGS for c in CONTROLS for seed in range(runs)]
    with ProcessPoolExecutor(processes) as pool:
        outcomes = dict(zip(jobs, pool.map(run, jobs), strict=True))
    found = {}
    for setting in SETTINGS:
        for control in CONTROLS:
            each = [outcomes[setting, control, first + seed] for seed in range(runs)]
            late = [one for result in each for one in result["late"]]
            names = "met_ratio", "accepted_ratio", "cpu_given", "makespan", "compute_met", "io_met"
            all_of = {name: middle([result[name] for result in each]) for name in names}
            for name in ("met_ratio", "compute_met", "io_met", "accepted_ratio"):
                known = [result[name] for result in each if result[name] is not None]
                all_of[f"{name.removesuffix('_ratio')}_mean"] = round(statistics.fmean(known), 4) if known else None
            all_of["late"] = round(statistics.fmean(late), 4) if late else 0.0
            all_of["runs"] = runs
            all_of["late_jobs"], all_of["worst"] = len(late), round(max(late, default=0.0), 4)
            found.setdefault(setting.name, {})[control] = all_of
    for each in found.values():
        ours, edf = each["adaptive"], each["edf_cores"]
        each["total_over_edf"] = round(ours["makespan"][0] / edf["makespan"][0], 4)
        each["met_over_edf"] = round(ours["met_mean"] - edf["met_mean"], 4)
        each["late_over_edf"] = round(ours["late"] - edf["late"], 4)
    return found


class Step:
    """One random plant, brought to its line by the agent's governor."""

    def __init__(self, rng, *, noise, known):
        self.a, self.b, self.delay = rng.uniform(0.0, 0.95), 10.0 ** rng.uniform(-1.0, 1.0), rng.choice((0, 1, 2))
        self.rng, self.noise = rng, noise
        self.gain = self.b / (1.0 - self.a)
        model = Model.first_order(self.a, self.b, delay=self.delay) if known else None
        work = rng.uniform(0.3, 0.7) * self.gain * PERIODS
        self.governor = Adaptive(Line(work, float(PERIODS)), 0.0, 1.0, model)
        self.judged = 0 if known else LEARNED
        self.first = []
        """Of the first periods: what the progress comes from, and the progress, all relative to that expected."""

    def run(self):
        """Return periods until it stays in its band, the fewest possible, overshoot, and reversals."""
        p = expected = 0.0
        caps, ratios, least = [], [], 0
        for k in range(PERIODS - 10):
            if self.governor.untuned is not None:
                self.governor.adopt(searched(self.governor.untuned, self.governor.noise))
            caps.append(self.governor.wish().cap)
            if k == self.judged:
                least = self.least(expected, caps[:-1])
            drive = self.b * (caps[k - self.delay] if k >= self.delay else 0.0)
            before = self.a * p + drive
            expected = self.a * expected + drive
            last, p = p, max(0.0, before * (1.0 + self.noise * self.rng.gauss(0.0, 1.0)))
            if k < LEARNED and before > 0.0:
                self.first.append((last / before, drive / self.b / before, p / before))
            ratios.append(expected / self.governor.reference)
            self.governor.observe(Sample(1.0, p, caps[k], caps[k]))
        judged = [ratio - 1.0 for ratio in ratios[self.judged :]]
        return (max((k + 1 for k, one in enumerate(judged) if abs(one) > BAND), default=0), least, *swings(judged))

    @property
    def told(self):
        """Whether the best least squares over the first periods, at the known delay, tell the gain within the band."""
        rows = np.array(self.first)
        (a, b), *_ = np.linalg.lstsq(rows[:, :2], rows[:, 2], rcond=None)
        return bool(abs(b / (1.0 - a) / self.gain - 1.0) <= BAND)

    def least(self, expected, caps):
        """Return the fewest periods outside of the band that any caps allow from here."""
        target = self.governor.reference
        waiting = ([0.0] * self.delay + caps)[len(caps) :]
        for k in range(1000):
            low, high = (self.a * expected + self.b * cap for cap in (0.0, 1.0))
            if waiting:
                low = high = self.a * expected + self.b * waiting.pop(0)
            if low <= target * (1.0 + BAND) and high >= target * (1.0 - BAND):
                return k
            expected = high if high < target else low
        return 1000


def swings(judged):
    """Return the overshoot after the line is reached, and the swings from one side of the band to the other."""
    reached = next((k for k, one in enumerate(judged) if abs(one) <= BAND), len(judged))
    outside = [one > 0.0 for one in judged if abs(one) > BAND]
    return max(judged[reached:], default=0.0), sum(a != b for a, b in pairwise(outside))


def one_step(job):
    """Run one plant; for another process."""
    seed, noise, known = job
    step = Step(random.Random(f"step/{seed}"), noise=noise, known=known)
    return step.a, *step.run(), step.told


def steps(plants, first, processes):
    """Return how random plants settle, by range of a."""
    found = {}
    for known in (True, False):
        for noise in (0.0, 0.05):
            with ProcessPoolExecutor(processes) as pool:
                each = list(pool.map(one_step, [(first + n, noise, known) for n in range(plants)], chunksize=50))
            of = f"{'known' if known else 'unknown'}_{'noise' if noise else 'exact'}"
            found[of] = {"all": share(each)}
            for low, high in pairwise(RANGES):
                found[of][f"a {low:g} to {min(high, 0.95):g}"] = share([one for one in each if low <= one[0] < high])
    return found


def share(each):
    """Return the parts of plants that do what is asked."""
    n = max(1, len(each))
    return {
        "plants": len(each),
        "settled_in_time": round(sum(took <= max(4, 1.5 * least) for _, took, least, *_ in each) / n, 4),
        "gain_told": round(sum(told for *_, told in each) / n, 4),
        "median_periods": statistics.median(took for _, took, *_ in each) if each else None,
        "median_least": statistics.median(least for _, _, least, *_ in each) if each else None,
        "overshoot_kept": round(sum(over <= BAND for *_, over, _, _ in each) / n, 4),
        "worst_overshoot": round(max((over for *_, over, _, _ in each), default=0.0), 4),
        "one_reversal_at_most": round(sum(turns <= 1 for *_, turns, _ in each) / n, 4),
    }


def times():
    """Return the CPU time of a search and a tick, and what a node that is half as fast does."""
    models = [Model.first_order(a, 1.0 - a, delay=2) for a in (0.0, 0.32, 0.9)]
    searches = [
        min(timeit.repeat(lambda m=m: tune(m, noise=0.05), timer=process_time, number=1, repeat=9)) for m in models
    ]
    ticks = {}
    for name, known in (("known", True), ("unknown", False)):
        governor = Adaptive(Line(1e6, 1e6), 0.0, 1.0, Model.first_order(0.32, 6.38) if known else None)
        rng = random.Random(1)

        def tick(governor=governor, rng=rng):
            cap = governor.wish().cap
            governor.observe(Sample(1.0, 9.4 * cap * rng.uniform(0.9, 1.1), cap, cap))
            if governor.untuned is not None:
                governor.adopt(searched(governor.untuned, 0.05))

        for _ in range(300):
            tick()
        ticks[name] = round(1e6 * min(timeit.repeat(tick, timer=process_time, number=2000, repeat=9)) / 2000, 2)
    return {
        "search_ms": round(1e3 * max(searches), 1),
        "tick_us": max(ticks.values()),
        "tick_us_by": ticks,
        "half_speed": {f"{noise:g}": half_speed(noise) for noise in (0.0, 0.05)},
    }


def half_speed(noise):
    """Return the periods after which a chunk is on its line again when its node is half as fast, and given back."""
    took = {"slower": [], "given_back": []}
    for seed in range(50):
        rng = random.Random(f"half/{seed}")
        a, b = rng.uniform(0.0, 0.6), 10.0 ** rng.uniform(-1.0, 1.0)
        governor = Adaptive(Line(0.35 * b / (1.0 - a) * 600, 600.0), 0.0, 1.0, Model.first_order(a, b))
        p = expected = 0.0
        ratios = []
        for k in range(500):
            if governor.untuned is not None:
                governor.adopt(searched(governor.untuned, governor.noise))
            cap = governor.wish().cap
            drive = b * cap * (0.5 if 150 <= k < 300 else 1.0)
            before, expected = a * p + drive, a * expected + drive
            p = max(0.0, before * (1.0 + noise * rng.gauss(0.0, 1.0)))
            ratios.append(expected / governor.reference - 1.0)
            governor.observe(Sample(1.0, p, cap, cap))
        for name, start in (("slower", 150), ("given_back", 300)):
            # in its band for ten periods, as noise alone may leave it later
            took[name].append(
                next((k for k in range(150) if all(abs(x) <= BAND for x in ratios[start + k : start + k + 10])), 150)
            )
    return {name: middle(values) for name, values in took.items()}


NAMES = {
    "adaptive": "ours",
    "adaptive_need_first": "ours, highest need first (C2)",
    "adaptive_as_printed": "ours, lines as printed",
    "adaptive_as_printed_need_first": "the same, highest need first (C2)",
    "adaptive_no_loan": "ours, nothing lent",
    "adaptive_no_loan_need_first": "the same, highest need first (C2)",
    "published": "published, lines as early as ours",
    "published_as_printed": "published, lines as printed",
    "none": "no control, caps of 1",
    "edf_cores": "EDF, whole cores",
}
"""Controls of the table, in its order."""
PAPER = "*the paper's measurement*"
PRINTED = {
    "compute_2_10": [(PAPER, "90.4", "12.4", "")],
    "mixed_2_10": [(PAPER, "80.9", "14.7", "12")],
    "compute_1_4": [(PAPER, "86", "", "")],
    "mixed_1_4": [(PAPER, "76", "", "")],
    "mixed_1_3": [
        (PAPER, "64.3; 80.9 and 47.6", "13.7 and 21.5", "10.7"),
        ("*its EDF with whole cores*", "54.8; 66.6 and 42.8", "12.9 and 39.3", "11.5"),
    ],
}
"""What the paper says: met and late by, in percent, also of compute-bound and I/O jobs, and hours in all."""


HEAD = "met, %", "late by, % (jobs)", "accepted, %", "CPU given while refusing, %", "total time, h"


def node_table(found):
    """Return the experiments as Markdown."""
    lines = []
    for setting in SETTINGS:
        each = found[setting.name]
        kind, head = "compute-bound", ("control", *HEAD)
        if setting.mixed:
            kind, head = "mixed", ("control", "met, %", "of compute-bound and I/O jobs", *HEAD[1:])
        lines += ["", f"**{kind}, deadlines of {setting.low:g} to {setting.high:g} run times**", "", row(*head)]
        lines.append("|---|" + "---:|" * (len(head) - 1))
        for name, met, late, hours in PRINTED.get(setting.name, []):
            all_of, _, kinds = met.partition("; ")
            lines.append(row(name, all_of, *([kinds] if setting.mixed else []), late, "", "", hours))
        lines += [row(name, *cells_of(each[control], mixed=setting.mixed)) for control, name in NAMES.items()]
    return "\n".join(lines[1:])


def row(*cells):
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def cells_of(one, *, mixed):
    """Return a control's cells: medians with the least and the highest run; of kinds of jobs, and late ones, means."""

    def cell(name, factor=100.0, form="{:.1f}"):
        if one[name] is None:
            return "never refused"
        mid, low, high = (form.format(value * factor).removesuffix(".0") for value in one[name])
        return mid if low == high else f"{mid} ({low} to {high})"

    kinds = [f"{100 * one['compute_met_mean']:.1f} and {100 * one['io_met_mean']:.1f}"] if mixed else []
    return (
        f"**{100 * one['met_mean']:.1f}**; {cell('met_ratio')}",
        *kinds,
        f"{100 * one['late']:.1f} ({one['late_jobs']})",
        cell("accepted_ratio"),
        cell("cpu_given", form="{:.0f}"),
        cell("makespan", 1.0 / 3600.0),
    )


def steps_table(found):
    """Return how steps settle as Markdown."""
    head = "| model, noise, a | plants | settles in time, % | gain told, % | overshoot ≤ 5 %, % | ≤ 1 reversal, % |"
    lines = [head, "|---|---:|---:|---:|---:|---:|"]
    for of, ranges in found.items():
        known, noise = of.split("_")
        for name, one in ranges.items():
            if known == "known" and name != "all":
                continue
            told = "" if known == "known" or noise == "exact" else f"{100 * one['gain_told']:.0f}"
            lines.append(
                f"| {known}, {'5 %' if noise == 'noise' else 'none'}, {name} | {one['plants']} | "
                f"{100 * one['settled_in_time']:.1f} | {told} | {100 * one['overshoot_kept']:.1f} | "
                f"{100 * one['one_reversal_at_most']:.1f} |"
            )
    return "\n".join(lines)


def times_table(found):
    """Return the times as Markdown."""
    lines = ["| CPU time | measured | asked |", "|---|---:|---:|"]
    lines.append(f"| search for the gains of a model, the slowest of three | {found['search_ms']} ms | ≤ 50 ms |")
    for name, took in found["tick_us_by"].items():
        lines.append(f"| a tick of one chunk, model {name} | {took} µs | ≤ 20 µs |")
    return "\n".join(lines)


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=["node", "steps", "times", []])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--plants", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    asked = parser.parse_args()
    parts = asked.parts or ["node", "steps", "times"]
    found = {}
    if "times" in parts:
        found["times"] = times()
    if "steps" in parts:
        found["steps"] = steps(asked.plants, asked.seed, asked.processes)
    if "node" in parts:
        found["node"] = node(asked.runs, asked.seed, asked.processes)
    if asked.markdown:
        for part, write in (("node", node_table), ("steps", steps_table), ("times", times_table)):
            if part in found:
                put(asked.markdown, f"control {part}", write(found[part]))
    print(json.dumps({"control": found}, indent=1))  # noqa: T201  what it is for


if __name__ == "__main__":
    main()
