"""Options of ``punctual simulate linger`` that are more than a number."""

from math import isfinite
from typing import Final

from punctual.cli.simulations.reading import load
from punctual.errors import PunctualError
from punctual.sim.linger.hosts import Constant, Hosts, Ryu
from punctual.sim.linger.trace import parse

MOST: Final = 1e8
"""Most node-seconds of a run: drawing its hosts takes 1 GB then."""


def hosts(text: str, nodes: int) -> Hosts:
    """Read ``ryu``, ``constant:U`` or the name of a trace. Raises PunctualError, also if a trace has more nodes."""
    if text == "ryu":
        return Ryu()
    kind, colon, number = text.partition(":")
    if kind != "constant" or not colon:
        trace = load(text, "--hosts", parse)
        many = len(trace.changes)
        if many > nodes:
            raise PunctualError(f"--nodes: the trace of --hosts has {many} nodes, and --nodes is {nodes}")
        return trace
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


def horizon(seconds: float, nodes: int) -> float:
    """Return the length of a run, s. Raises PunctualError if its hosts would not fit into memory."""
    if seconds * nodes > MOST:
        raise PunctualError(
            f"--horizon: {seconds:g} s on {nodes} nodes are too many: --nodes times --horizon must be at most "
            f"{MOST:g}, so {MOST / nodes:g} s on {nodes} nodes, or {int(MOST / seconds)} nodes for {seconds:g} s"
        )
    return seconds
