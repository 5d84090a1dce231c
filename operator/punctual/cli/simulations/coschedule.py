"""What ``punctual simulate coschedule`` runs: a scenario, or the table of the thesis."""

from punctual.cli.simulations.reading import load
from punctual.errors import PunctualError
from punctual.sim.coschedule import run
from punctual.sim.coschedule.report import Report
from punctual.sim.coschedule.scenario import Slices, Stations, parse
from punctual.sim.coschedule.table import table


def scenario(file: str | None, *, paper: bool) -> Slices | Stations:
    """Read a scenario; with ``paper`` it may be left out. Raises PunctualError."""
    if file is None:
        if not paper:
            raise PunctualError("SCENARIO: is missing: name a file, or - for standard input")
        return Stations()
    read = load(file, "SCENARIO", parse)
    if paper and isinstance(read, Slices):
        raise PunctualError("SCENARIO: model: --paper needs 'stations', not 'slices'")
    return read


def simulate(read: Slices | Stations, seed: int, *, paper: bool) -> Report:
    """Run a scenario, or all cells of the table with what it does not vary from the scenario."""
    if paper:
        assert isinstance(read, Stations), "the scenario was checked"
        return table(read, seed)
    return run.simulate(read, seed)
