"""Scenarios of coscheduled applications."""

from punctual.sim.coschedule.scenario import Slices
from punctual.sim.coschedule.slices import simulate

EXAMPLE = {
    "model": "slices",
    "nodes": 2,
    "duration": 20.0,
    "hogs": 1,
    "quantum": 0.004,
    "apps": [
        {
            "id": "a",
            "nodes": [0, 1],
            "grain": 0.005,
            "wait": "spin",
            "pattern": "all",
            "latency": 0.00005,
            "policy": "bucket",
            "period": 0.1,
            "slice": 0.05,
            "phases": [0.0, 0.03],
            "offset": 0.0,
            "error": 0.0,
        }
    ],
}
"""The scenario of docs/simulate.md."""


def slices(*apps, nodes=2, duration=6.0, **more):
    """Return a scenario of applications with slices."""
    written = {"nodes": nodes, "duration": duration, "apps": list(apps), **more}
    return Slices.model_validate(written, strict=False)


def one(seed=0, nodes=2, duration=6.0, hogs=1, **app):
    """Simulate one application on all nodes; return its report."""
    made = slices({"nodes": range(nodes), **app}, nodes=nodes, duration=duration, hogs=hogs)
    return simulate(made, seed).apps[0]
