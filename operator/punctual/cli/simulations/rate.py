"""``punctual simulate rate``: applications held at target rates, by the operator's own law."""

import sys
from pathlib import Path

from punctual.errors import PunctualError
from punctual.sim.rates.scenario import Scenario, ScenarioError, parse


def load(scenario: str) -> Scenario:
    """Read a scenario from a file, or from standard input for "-". Raises PunctualError."""
    try:
        if scenario != "-":
            text = Path(scenario).read_bytes()
        elif sys.stdin is None:
            raise PunctualError("SCENARIO: standard input is closed")
        else:
            text = sys.stdin.buffer.read()
    except OSError as error:
        raise PunctualError(f"SCENARIO: {scenario} cannot be read: {error.strerror}") from error
    try:
        return parse(text)
    except ScenarioError as error:
        raise ScenarioError(f"SCENARIO: {error}") from error
