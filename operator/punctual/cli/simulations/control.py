"""``punctual simulate control``: jobs on the cores of one node, by the operator's own controllers."""

import sys
from pathlib import Path

from punctual.errors import PunctualError
from punctual.sim.plants.report import Result
from punctual.sim.plants.run import simulate
from punctual.sim.plants.scenario import PlantError, Scenario, parse


def load(plant: str) -> Scenario:
    """Read a scenario from a file, or from standard input for "-". Raises PunctualError."""
    try:
        if plant != "-":
            text = Path(plant).read_bytes()
        elif sys.stdin is None:
            raise PunctualError("PLANT: standard input is closed")
        else:
            text = sys.stdin.buffer.read()
    except OSError as error:
        raise PunctualError(f"PLANT: {plant} cannot be read: {error.strerror}") from error
    try:
        return parse(text)
    except PlantError as error:
        raise PlantError(f"PLANT: {error}") from error


def run(scenario: Scenario, *, seed: int) -> Result:
    """Simulate."""
    return simulate(scenario, seed=seed)
