"""Open loop: CPU limits written by hand, and how the progress of three programs follows them.

The programs run side by side on one node, which has CPU enough for all. Their limits go up and down in turn, with
three periods of the kernel's CFS quota.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from lib.testbed import Json

from experiments_lib import samples, watching
from experiments_lib.ground import NAMESPACE, Ground
from experiments_lib.programs import PROGRAMS
from experiments_lib.samples import Spread, Track
from experiments_lib.watching import Seen

PERIODS = (0.02, 0.1, 0.25)
LOW, HIGH = 0.1, 0.2
"""Cores."""
LEVEL = 6.0
"""Seconds that a limit stays."""
STEPS = 8
"""Levels per period, low and high in turn; the first is only to begin with."""
EVERY = 0.05
LEAD = 4.0
"""Seconds before the first write."""
SETTLED = 2.0
"""Seconds after a write from which on a level is steady."""


def run(ground: Ground) -> Json:
    """Write limits, watch, and return delays and noise by program and period, with one track for the picture."""
    node = ground.nodes[0]
    for program in PROGRAMS:
        pod = ground.pod(
            program.name, node, program.command, PUNCTUAL_BEGIN="0", PUNCTUAL_END="10000000", PUNCTUAL_DIR="/punctual"
        )
        ground.create(pod)
    names = {program.name for program in PROGRAMS}
    ground.until(lambda: names <= ground.pods().keys(), within=60, what="the programs to run")
    pods = {watching.uid(pod): name for name, pod in ground.pods().items() if name in names}
    writes, at = [], LEAD
    for period in PERIODS:
        for step in range(STEPS):
            writes += [(at, uid, HIGH if step % 2 else LOW, period) for uid in pods]
            at += LEVEL
    seconds = at + 1.0
    ground.say(f"limits of {LOW} and {HIGH} cores in turn, {seconds:.0f} s")
    watching.begin(ground, "recorder", node, pods, every=EVERY, seconds=seconds, writes=writes)
    found = watching.end(ground, "recorder", within=seconds + 60)
    ground.kubectl.run("delete", "pod", *names, "-n", NAMESPACE)
    return {
        "low": LOW,
        "high": HIGH,
        "seconds_per_level": LEVEL,
        "programs": {name: _program(seen) for name, seen in sorted(found.items())},
        "tracks": {name: _shown(seen) for name, seen in sorted(found.items())},
    }


def _program(seen: Seen) -> Json:
    return {f"{1000 * period:.0f}": _period(seen, period) for period in PERIODS}


def _period(seen: Seen, period: float) -> Json:
    """Return delay, noise and gain of one program with one period."""
    written = [(at, cores) for at, cores, there in seen.written if there == period]
    return {
        "delay_cpu": _delays(seen.cpu, [at for at, _ in written[1:]]),
        "delay_units": _delays(seen.units, [at for at, _ in written[1:]]),
        "noise_cpu": _spread(lambda at: _noise(seen.cpu, at), written),
        "noise_units": _spread(lambda at: _noise(seen.units, at), written),
        "units_low": _rate(seen.units, [at for at, cores in written if cores == LOW]),
        "units_high": _rate(seen.units, [at for at, cores in written if cores == HIGH]),
        "cpu_high": _rate(seen.cpu, [at for at, cores in written if cores == HIGH]),
    }


def _delays(track: Track, moments: list[float]) -> Json | None:
    found = [samples.step_delay(track, at, before=LEVEL - SETTLED, after=LEVEL, settled=SETTLED) for at in moments]
    known = [one for one in found if one is not None]
    return asdict(Spread.of(known)) if known else None


def _noise(track: Track, at: float) -> float:
    return samples.noise(track, at + SETTLED, at + LEVEL)


def _spread(value: Callable[[float], float], written: list[tuple[float, float]]) -> Json:
    return asdict(Spread.of([value(at) for at, _ in written]))


def _rate(track: Track, moments: list[float]) -> Json:
    return asdict(Spread.of([samples.line(samples.between(track, at + SETTLED, at + LEVEL))[1] for at in moments]))


def _shown(seen: Seen) -> Json:
    """Return rates over half a second for the picture, and the limits, from the first write on."""
    origin, last = seen.written[0][0], seen.units[-1][0]
    times = [origin + 0.5 * k for k in range(int((last - origin) / 0.5))]
    rates = [2 * (samples.at(seen.units, t + 0.5) - samples.at(seen.units, t)) for t in times]
    return {
        "time": [round(t + 0.25 - origin, 2) for t in times],
        "units_per_second": [round(rate, 2) for rate in rates],
        "limits": [[round(at - origin, 2), cores, period] for at, cores, period in seen.written],
    }
