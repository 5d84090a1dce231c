"""Options of ``punctual simulate linger`` that are more than a number."""

from math import isfinite

from punctual.cli.simulations.reading import load
from punctual.errors import PunctualError
from punctual.sim.linger.hosts import Constant, Hosts, Ryu
from punctual.sim.linger.trace import parse


def hosts(text: str) -> Hosts:
    """Read ``ryu``, ``constant:U`` or the name of a trace. Raises PunctualError."""
    if text == "ryu":
        return Ryu()
    kind, colon, number = text.partition(":")
    if kind != "constant" or not colon:
        return load(text, "--hosts", parse)
    try:
        use = float(number)
    except ValueError:
        use = -1.0
    if not (isfinite(use) and 0.0 <= use <= 1.0):
        raise PunctualError(f"--hosts: constant:{number} must be a use from 0 to 1, such as constant:0.3")
    return Constant(use)


def processes(parallel: int, nodes: int) -> int:
    """Return the processes of a guest. Raises PunctualError if there are fewer nodes."""
    if parallel > nodes:
        raise PunctualError(f"--parallel: {parallel} processes need {parallel} nodes, and --nodes is {nodes}")
    return parallel
