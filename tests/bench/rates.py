"""How applications are held at target rates, simulated: prints JSON, medians, with minimum and maximum in `spread`.

The paper's programs (compute/communicate 5:1, 1:1, 1:5; iterations of 15 s at half of the rate alone), with 100 µs for
each start of a slice, on four nodes, ε = 1 %, targets that change in the midst of an iteration: the default law and
the paper's beside each other. The longest period that holds a target is searched among all multiples of 2 ms, each with
three slices. `short` are programs with iterations of 2 s alone: their slices are long beside an exchange. Then six
applications at once, external load of 1.0 on one node (the paper's ratio 3:1 and the three others, ε = 1 % and 3 %),
uneven nodes, and disk writes (ratio 145:1, ε = 3 %, a disk of 40 MB/s).

Run: .venv/bin/python tests/bench/rates.py [--seeds 8] [--markdown FILE]
--markdown writes the table into a page, between its marks.
"""

import argparse
import json
import statistics
import sys
from itertools import product
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from marks import put
from rates import RATIOS, Fixed, app, longest, scenario, steps

from punctual.control.rate import Pair
from punctual.sim.rates.run import simulate

RATES = 0.5, 0.3, 0.4, 0.2, 0.6
PATTERNS = "all-to-all", "neighbour"
MEGABYTES, DISK = (0, 1, 5, 10, 20, 40, 50), 40.0
"""What each rank writes in an iteration, as the paper has it; MB/s, which it does not tell."""
NEVER = 1000
"""Stands for a target that was not settled."""


def held(made, seed):
    """Return the objects of a scenario's applications."""
    return simulate(made, seed).document()["apps"]


def programs(alone, law, epsilon, seeds):
    """Run programs of all ratios and patterns through RATES; yield (ratio, pattern, seed, said)."""
    targets, end = steps(alone, RATES)
    for (name, ratio), pattern, seed in product(RATIOS.items(), PATTERNS, range(seeds)):
        one = app(alone=alone, ratio=ratio, targets=targets, pattern=pattern, law=law, epsilon=epsilon)
        yield name, pattern, seed, held(scenario(one, duration=end), seed)[0]


def settling(said):
    """Return iterations until the first in band: after the start, and after each change of target."""
    first, *others = (n or NEVER for n in said["settling_iterations"])
    return first, others


def summary(found):
    """Return what is asked of runs, and more: medians, and the spread."""
    numbers = {
        "settling_start": [settling(said)[0] for *_, said in found],
        "settling_change": [n for *_, said in found for n in settling(said)[1]],
        "in_band": [said["in_band_fraction"] for *_, said in found],
        "changes_in_band": [said["oscillations"] for *_, said in found],
        "mean_error": [said["mean_error"] or 0.0 for *_, said in found],
        "period_ms": [1e3 * period for *_, said in found for period in said["periods"]],
        "cpu_overhead_percent": [100 * said["cpu_overhead"] for *_, said in found],
    }
    return numbers, {
        "within_two_iterations": share(n <= 2 for n in numbers["settling_change"] or numbers["settling_start"]),
        "without_changes_in_band": share(n == 0 for n in numbers["changes_in_band"]),
    }


def share(flags):
    """Return which part of the flags is set."""
    flags = list(flags)
    return round(sum(flags) / len(flags), 4)


def over_longest(found, alone):
    """Return each period over the longest that holds the target."""
    return [
        period / best
        for name, pattern, seed, said in found
        for period, rate in zip(said["periods"], RATES, strict=True)
        if (best := longest(rate, alone=alone, ratio=RATIOS[name], seed=seed, pattern=pattern))
    ]


def scenarios(seeds):
    """Run the paper's other experiments; return numbers of each."""
    six = scenario(*(app(f"p{n}", 6.0, 3.0, targets=[(0, 0.1)]) for n in range(6)), duration=1200)
    uneven = scenario(app(alone=4.0, targets=[(0, 0.14)], speeds=[0.5, 0.5, 1.0, 1.0]), duration=1500)
    two = scenario(app("a", targets=[(0, 0.3)]), app("b", targets=[(0, 0.4)]), duration=1200)
    for name, made in {"two": two, "six": six, "uneven": uneven, "load": loaded(3.0, 0.01)}.items():
        yield name, [("", "", seed, said) for seed in range(seeds) for said in held(made, seed)]
    for name, ratios, epsilon in (("load_ratios", RATIOS.values(), 0.01), ("load_3", (3.0, *RATIOS.values()), 0.03)):
        runs = product(ratios, range(seeds))
        yield name, [("", "", seed, held(loaded(ratio, epsilon), seed)[0]) for ratio, seed in runs]


def loaded(ratio, epsilon):
    """Return an application at half of its rate alone, with external load on one node for a while."""
    load = [{"node": 0, "from": 400.0, "until": 700.0, "amount": 1.0}]
    return scenario(app(ratio=ratio, alone=7.5, targets=[(0, 0.5)], epsilon=epsilon), duration=1000, load=load)


def disk(seeds):
    """Return, by MB that each rank writes in an iteration, the part in band and the mean rate; asked are 50 ± 3 %."""
    found = {}
    for written in MEGABYTES:
        one = app(alone=7.5, ratio=145.0, targets=[(0, 0.5)], epsilon=0.03, io=written / DISK)
        runs = [simulate(scenario(one, duration=1000), seed) for seed in range(seeds)]
        rates_ = [sample.rate for run in runs for sample in run.samples[2:]]
        bands = [run.document()["apps"][0]["in_band_fraction"] for run in runs]
        found[str(written)] = {"in_band": round(min(bands), 4), "rate": round(statistics.fmean(rates_), 4)}
    return found


def waits(programs_):
    """Return quantiles of the waits of random programs at random pairs: what the constants of the law come from."""
    rng, found = Random(1), []
    for seed in range(programs_):
        alone, ratio, rate = 2.0 ** rng.uniform(0.0, 3.6), rng.choice(list(RATIOS.values())), rng.uniform(0.1, 0.8)
        period, ranks = 10 ** rng.uniform(-2.0, -0.7), rng.choice((2, 4, 8))
        pair = Pair(period, period * rate)
        made = scenario(app(alone=alone, ratio=ratio, ranks=ranks), duration=6.0 * alone / rate, nodes=ranks)
        seen = [sample.rate for sample in simulate(made, seed, laws=lambda *_, pair=pair: Fixed(pair)).samples[1:4]]
        worst = min(seen, default=rate)
        gap = rate * worst * (1.0 - rate) * period / alone
        found.append((rate - worst - made.switch_cost / period) / gap)
    found.sort()
    return {f"p{q}": round(found[len(found) * q // 100], 2) for q in (5, 50, 90, 97)} | {"programs": programs_}


def measure(seeds):
    """Return the benchmark's numbers by name, and their spread."""
    found, spread = {}, {}

    def keep(name, runs, ratios=None):
        numbers, more = summary(runs)
        if ratios is not None:
            numbers["over_longest"] = ratios
            more["half_of_longest"] = share(ratio >= 0.5 - 1e-9 for ratio in ratios)
        numbers = {k: v for k, v in numbers.items() if v}
        found[name] = {k: round(statistics.median(v), 4) for k, v in numbers.items()} | more | {"runs": len(runs)}
        spread[name] = {k: [round(min(v), 4), round(max(v), 4)] for k, v in numbers.items()}
        found[name]["worst"] = {
            "settling": max(numbers["settling_start"] + numbers.get("settling_change", [])),
            "changes_in_band": max(numbers["changes_in_band"]),
            "in_band": round(min(numbers["in_band"]), 4),
        }
        if ratios is not None:
            found[name]["worst"]["over_longest"] = round(min(ratios), 4)

    for name, alone, law, epsilon in (
        ("paper", 7.5, "bracketing", 0.01),
        ("short", 2.0, "bracketing", 0.01),
        ("linear", 7.5, "linear", 0.01),
        ("linear_3", 7.5, "linear", 0.03),
        ("linear_short", 2.0, "linear", 0.01),
    ):
        runs = list(programs(alone, law, epsilon, seeds))
        keep(name, runs, over_longest(runs, alone) if law == "bracketing" else None)
    for name, runs in scenarios(seeds):
        keep(name, runs)
    found["disk"] = disk(seeds)
    found["waits"] = waits(1000)
    return {"rates": found, "spread": {"rates": spread}}


ROWS = {
    "paper": ("5:1, 1:1, 1:5, iterations of 7.5 s, ε = 1 %", "no hold below ε = 2 to 3 %"),
    "linear": ("the same by the paper's law", ""),
    "linear_3": ("the same by the paper's law, ε = 3 %", "held; about two iterations, 29 to 32 s"),
    "short": ("iterations of 2 s, ε = 1 %", ""),
    "linear_short": ("the same by the paper's law", ""),
    "two": ("two applications, 30 and 40 %", "held"),
    "six": ("six applications, 10 % each", "five and more, slight oscillation"),
    "load": ("external load of 1.0, 3:1, 50 %", "does not show, ε = 3 %"),
    "load_ratios": ("the same, 5:1, 1:1 and 1:5", ""),
    "load_3": ("the same, all four ratios, ε = 3 %", ""),
    "uneven": ("two of four nodes half as fast, 14 %", "NAS IS, 28 and 14 %, held at 14 %"),
}
"""The table's rows, and what the paper found."""


HEAD = (
    "programs; ε = 1 % if not said",
    "published",
    "settles within 2 iterations, %",
    "in band, the least run, %",
    "runs without a change in band",
    "period ≥ half of the longest, %",
    "switches, % of CPU",
)


def table(found):
    """Return the numbers as Markdown."""
    lines = [row(*HEAD), "|---|---|---:|---:|---:|---:|---:|"]
    for name, (what, published) in ROWS.items():
        one = found[name]
        settled, held_, runs = one["within_two_iterations"], one["worst"]["in_band"], one["runs"]
        steady = f"{one['without_changes_in_band'] * runs:.0f} of {runs}"
        half = f"{100 * one['half_of_longest']:.0f}" if "half_of_longest" in one else ""
        cost = f"{one['cpu_overhead_percent']:.2f}"
        lines.append(row(what, published, f"{100 * settled:.0f}", f"{100 * held_:.0f}", steady, half, cost))
    lines += [
        "",
        row("MB written by each node in an iteration", "in band, the least run, %", "rate, %"),
        "|---|---:|---:|",
    ]
    lines += [row(mb, f"{100 * one['in_band']:.0f}", f"{100 * one['rate']:.1f}") for mb, one in found["disk"].items()]
    return "\n".join(lines)


def row(*cells):
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    asked = parser.parse_args()
    found = measure(asked.seeds)
    if asked.markdown:
        put(asked.markdown, "rates", table(found["rates"]))
    print(json.dumps(found, indent=1))  # noqa: T201  what it is for


if __name__ == "__main__":
    main()
