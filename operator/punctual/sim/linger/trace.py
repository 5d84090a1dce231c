"""Traces of hosts: lines of node, time and CPU demand."""

from math import isfinite
from typing import Final

from punctual.errors import PunctualError
from punctual.sim.linger.hosts import Trace

MOST: Final = 1e9
"""Greatest time in a trace, s."""


def parse(text: bytes) -> Trace:
    """Read a trace: in each line a node's name, a time (s) and the fraction of its CPU that hosts use from then on.

    Commas or blanks separate them. Empty lines and those that begin with # are ignored. Raises PunctualError with the
    number of the line.
    """
    nodes: dict[str, list[tuple[float, float]]] = {}
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise PunctualError("a trace must be UTF-8 text") from error
    for number, line in enumerate(lines, 1):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        try:
            node, time, use = words[0], *(float(word) for word in words[1:])
        except ValueError:
            node, time, use = "", -1.0, -1.0
        if not (0.0 <= time <= MOST and 0.0 <= use <= 1.0 and isfinite(time + use)):
            raise PunctualError(
                f"line {number}: must be a node, a time in seconds and a CPU demand from 0 to 1: {line!r}"
            )
        changes = nodes.setdefault(node, [])
        if changes and changes[-1][0] > time:
            raise PunctualError(f"line {number}: times of node {node} must not fall: {time:g} after {changes[-1][0]:g}")
        changes.append((time, use))
    if not nodes:
        raise PunctualError("the trace is empty: each line has a node, a time in seconds and a CPU demand from 0 to 1")
    return Trace(tuple(nodes.values()))
