"""A run of either model."""

from punctual.sim.coschedule import slices, stations
from punctual.sim.coschedule.report import SlicesReport, StationsReport
from punctual.sim.coschedule.scenario import Slices, Stations


def simulate(scenario: Slices | Stations, seed: int = 0) -> SlicesReport | StationsReport:
    """Run a scenario; the same seed gives the same report."""
    return slices.simulate(scenario, seed) if isinstance(scenario, Slices) else stations.simulate(scenario, seed)
