"""The demo's example programs, and the cost of a unit of each on the nodes of the pool.

Sizes and deadlines must follow from the actual cluster. Each program is therefore run alone for a moment, in a pod on a
node of the pool, and its CPU time is measured. CPU time does not depend on the load by other programs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

EXAMPLES = "/opt/punctual/examples"
START = 4.0
"""Seconds from the decision to create a pod until its program begins, when a node starts some at once."""
SAFETY = 1.1
"""A processor has no cache for itself, and is stopped and let go ten times a second."""


@dataclass(frozen=True, slots=True)
class Program:
    """An example, how to run it, and which units to try it with."""

    name: str
    command: tuple[str, ...]
    few: tuple[int, int]
    many: tuple[int, int]
    total: int | None
    """How many units it has; None: as many as wanted."""


PRIMES = Program("primes", ("python3", f"{EXAMPLES}/primes/primes.py"), (0, 2), (0, 26), None)
# larger numbers take longer to factor: tried where the demo's are largest
MERTENS = Program("mertens", (f"{EXAMPLES}/mertens/mertens.sh",), (1000, 1002), (1000, 1026), None)
CLOCKS = Program("clocks", ("python3", f"{EXAMPLES}/clocks/clocks.py"), (190, 192), (180, 204), 400)
PROGRAMS = (PRIMES, MERTENS, CLOCKS)


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds on one processor of the pool: χ per unit, θcp before a chunk's first unit."""

    chi: float
    theta: float


# CPU seconds of a run over few and over many units: the smaller of two each, since anything else only adds
MEASURE = """
import json, os, resource, subprocess, sys
def cpu(command, begin, end, total):
    environment = dict(os.environ, PUNCTUAL_BEGIN=str(begin), PUNCTUAL_END=str(end), PUNCTUAL_TOTAL=str(total),
                       PUNCTUAL_DIR="/tmp", PUNCTUAL_OFFER="/tmp/none", PUNCTUAL_TERMINATION_LOG="/dev/null")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
found = {}
for name, command, few, many, total in json.loads(sys.argv[1]):
    a, b = (min(cpu(command, *r, total) for _ in range(2)) for r in (few, many))
    found[name] = [a, b]
open("/dev/termination-log", "w").write(json.dumps(found))
"""


def measuring_command() -> list[str]:
    """Return the command of the pod that measures; its termination message is for :func:`costs`."""
    asked = [[p.name, p.command, p.few, p.many, p.total or 10**6] for p in PROGRAMS]
    return ["python3", "-c", MEASURE, json.dumps(asked)]


def costs(message: str, cpu: float) -> dict[str, Cost]:
    """Read what was measured, for processors of so many cores."""
    found = json.loads(message)
    result = {}
    for program in PROGRAMS:
        few, many = found[program.name]
        small, large = (end - begin for begin, end in (program.few, program.many))
        unit = max(1e-6, (many - few) / (large - small))
        before = max(0.0, few - small * unit)
        result[program.name] = Cost(chi=SAFETY * unit / cpu, theta=START + before / cpu)
    return result
