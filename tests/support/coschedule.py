"""Scenarios of coscheduled applications."""

from punctual.sim.coschedule.scenario import Slices, Stations
from punctual.sim.coschedule.slices import simulate
from punctual.sim.coschedule.stations import simulate as serve

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
STATIONS = {
    "model": "stations",
    "policy": "LIN",
    "stations": 4,
    "mrql": 5,
    "pdt": 0.5,
    "maxm": 3,
    "mco": None,
    "quantum": 10,
    "mit": 10,
    "slice": 100,
    "spin": 0.1,
    "symmetry": 0.9,
    "tasks": 10000,
    "warm": 0.1,
}
"""The defaults of the other model."""


def slices(*apps, nodes=2, duration=6.0, **more):
    """Return a scenario of applications with slices."""
    written = {"nodes": nodes, "duration": duration, "apps": list(apps), **more}
    return Slices.model_validate(written, strict=False)


def one(seed=0, nodes=2, duration=6.0, hogs=1, **app):
    """Simulate one application on all nodes; return its report."""
    made = slices({"nodes": range(nodes), **app}, nodes=nodes, duration=duration, hogs=hogs)
    return simulate(made, seed).apps[0]


def stations(policy, mrql=2, pdt=0.5, *, seed=0, tasks=4000, **more):
    """Simulate stations; return their report."""
    return serve(Stations(policy=policy, mrql=float(mrql), pdt=pdt, tasks=tasks, **more), seed)
