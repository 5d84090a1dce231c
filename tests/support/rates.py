"""Scenarios of applications at target rates: builders, a law that never changes anything, the exhaustive search."""

from dataclasses import dataclass
from functools import cache

from punctual.control.rate import Pair, RateDecision
from punctual.sim.rates.run import simulate
from punctual.sim.rates.scenario import Scenario

RATIOS = {"5:1": 5.0, "1:1": 1.0, "1:5": 0.2}
"""The paper's compute/communicate ratios."""
STEP = 0.002
"""Periods of the exhaustive search are multiples of the paper's step, s."""

EXAMPLE = {
    "nodes": 4,
    "min_period": 0.002,
    "max_period": 0.2,
    "apps": [
        {
            "id": "p1",
            "compute": 1.0,
            "communicate": 1.0,
            "ranks": 4,
            "pattern": "all-to-all",
            "targets": [{"at": 0, "rate": 0.4}, {"at": 60, "rate": 0.2}],
            "epsilon": 0.01,
            "speeds": [1, 1, 1, 1],
        }
    ],
    "load": [{"node": 0, "from": 100, "until": 200, "amount": 1.0}],
    "duration": 300,
}
"""The scenario of docs/simulate.md."""


def app(name="p", alone=6.0, ratio=1.0, targets=((0, 0.4),), ranks=4, **more):
    """Return an application. One of its iterations takes ``alone`` CPU seconds."""
    return {
        "id": name,
        "compute": alone * ratio / (1 + ratio),
        "communicate": alone / (1 + ratio),
        "ranks": ranks,
        "targets": [{"at": float(at), "rate": rate} for at, rate in targets],
        **more,
    }


def scenario(*apps, duration, nodes=4, load=(), **more):
    """Return a scenario with the paper's range of periods."""
    limits = {"min_period": 0.002, "max_period": 0.2}
    written = {"nodes": nodes, **limits, "apps": list(apps), "load": list(load), "duration": float(duration), **more}
    return Scenario.model_validate(written, strict=False)


def steps(alone, rates, iterations=12.3):
    """Return targets that change after so many iterations each, in the midst of one, and when the last one ends."""
    at, found = 0.0, []
    for rate in rates:
        found.append((at, rate))
        at += iterations * alone / rate
    return found, at


@dataclass
class Fixed:
    """A law that keeps one pair."""

    pair: Pair

    def aim(self, target, *, ceiling=1.0):
        return RateDecision(self.pair, "Start")

    def report(self, seen):
        return RateDecision(self.pair, "Hold")


def holds(pair, rate, *, alone, ratio, seed, epsilon=0.01, iterations=7, **more):
    """Return whether a pair holds a rate in each iteration after the first, with the slots of a seed."""
    made = scenario(
        app(alone=alone, ratio=ratio, targets=[(0, rate)], epsilon=epsilon, **more), duration=iterations * alone / rate
    )
    after = simulate(made, seed, laws=lambda *_: Fixed(pair)).samples[1:]
    return bool(after) and all(sample.in_band(epsilon) for sample in after)


@cache
def longest(rate, *, alone, ratio, seed, epsilon=0.01, pattern="all-to-all"):
    """Return the longest period that holds a rate with some slice: all periods are tried, from 200 ms down; 0: none."""
    for n in range(100, 0, -1):
        period = n * STEP
        for part in (0.9, 0.45, 0.0):
            pair = Pair(period, period * (rate + part * epsilon))
            how = {"alone": alone, "ratio": ratio, "seed": seed, "epsilon": epsilon, "pattern": pattern}
            if pair.slice >= 0.001 and holds(pair, rate, **how):
                return period
    return 0.0
