"""Scenarios of simulations: one JSON object from a file or from standard input."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from punctual.errors import PunctualError

Scenario = TypeVar("Scenario")


def load(file: str, argument: str, parse: Callable[[bytes], Scenario]) -> Scenario:
    """Read a scenario from a file, or from standard input for "-". Raises PunctualError, with the argument's name."""
    try:
        return parse(_bytes(file))
    except OSError as error:
        raise PunctualError(f"{argument}: {file} cannot be read: {error.strerror}") from error
    except PunctualError as error:
        raise PunctualError(f"{argument}: {error}") from error


def _bytes(file: str) -> bytes:
    if file != "-":
        return Path(file).read_bytes()
    if sys.stdin is None:
        raise PunctualError("standard input is closed")
    return sys.stdin.buffer.read()
