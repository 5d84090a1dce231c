"""How applications are held at target rates, simulated: prints JSON, medians, with minimum and maximum in `spread`.

The paper's programs (compute/communicate 5:1, 1:1, 1:5; iterations of 15 s at half of the rate alone), with 100 µs for
each start of a slice, on four nodes, ε = 1 %, targets that change in the midst of an iteration: the default law and
the paper's beside each other. The longest period that holds a target is searched among all multiples of 2 ms, each with
three slices. `short` are programs with iterations of 2 s alone: their slices are long beside an exchange. Then six
applications at once, external load of 1.0 on one node, uneven nodes.

Run: .venv/bin/python tests/bench/rates.py [--seeds 8]
"""

import argparse
import json
import statistics
import sys
from itertools import product
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from rates import RATIOS, Fixed, app, longest, scenario, steps

from punctual.control.rate import Pair
from punctual.sim.rates.run import simulate

RATES = 0.5, 0.3, 0.4, 0.2, 0.6
PATTERNS = "all-to-all", "neighbour"
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
    load = [{"node": 0, "from": 400.0, "until": 700.0, "amount": 1.0}]
    loaded = scenario(app(alone=7.5, ratio=3.0, targets=[(0, 0.5)]), duration=1000, load=load)
    uneven = scenario(app(alone=4.0, targets=[(0, 0.14)], speeds=[0.5, 0.5, 1.0, 1.0]), duration=1500)
    two = scenario(app("a", targets=[(0, 0.3)]), app("b", targets=[(0, 0.4)]), duration=1200)
    for name, made in {"two": two, "six": six, "load": loaded, "uneven": uneven}.items():
        yield name, [("", "", seed, said) for seed in range(seeds) for said in held(made, seed)]


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
    found["waits"] = waits(1000)
    return {"rates": found, "spread": {"rates": spread}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    print(json.dumps(measure(parser.parse_args().seeds), indent=1))  # noqa: T201  what it is for
