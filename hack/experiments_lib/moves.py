"""A range of a guest that goes to another node: how long from a burst of its node's own work until it goes on there.

A guest job of one chunk runs on one of two nodes. First its node is cordoned, again and again: it must leave at once.
Then its node gets work of its own, and it leaves when its policy says that this pays. A node counts as busy until it
was quiet for a minute, so bursts are a minute apart.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from lib.testbed import Json

from experiments_lib.ground import NAMESPACE, Ground
from experiments_lib.guests import endless
from experiments_lib.samples import Spread
from punctual import reasons
from punctual.errors import PunctualError
from punctual.labels import KIND_LABEL

POOL = "experiments-moves"
QUIET = 65.0
"""Seconds until a node that had a burst counts as idle."""
WORKS = 6.0
"""Seconds that a chunk works before the next move."""
WITHIN = 60.0
DECIDES = 30.0
"""Seconds in which a chunk must be told to leave."""
KIND = f"{KIND_LABEL}=Guest"
LEAVES = {reasons.GUEST_MOVES, reasons.GUEST_LEAVES}
POD = "POD:.metadata.name,NODE:.spec.nodeName,PHASE:.status.phase,GOING:.metadata.deletionTimestamp"
EVENT = "REASON:.reason"


@dataclass(slots=True)
class Log:
    """What two watches have told: (time, words)."""

    pods: list[tuple[float, list[str]]] = field(default_factory=list)
    events: list[tuple[float, list[str]]] = field(default_factory=list)

    def running(self, since: float, *, not_on: str) -> float | None:
        """Return when a pod was first seen to run on another node."""
        for at, (_, node, phase, going) in list(self.pods):
            if at >= since and phase == "Running" and going == "<none>" and node != not_on:
                return at
        return None

    def decided(self, since: float) -> float | None:
        """Return when the decision that a chunk leaves was first told."""
        return next((at for at, words in list(self.events) if at >= since and words[0] in LEAVES), None)


@contextlib.contextmanager
def watching() -> Iterator[Log]:
    """Watch the pods of guests, and the events, of the namespace."""
    log = Log()
    with contextlib.ExitStack() as stack:
        for into, what, columns in ((log.pods, "pods", POD), (log.events, "events", EVENT)):
            shown = ["--no-headers", "-o", f"custom-columns={columns}"]
            words = ["kubectl", "get", what, "-n", NAMESPACE, "--watch", *shown]
            program = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
            stack.callback(program.terminate)
            threading.Thread(target=_read, args=(program, into), daemon=True).start()
        yield log


def _read(program: subprocess.Popen[str], into: list[tuple[float, list[str]]]) -> None:
    for line in program.stdout or ():
        into.append((time.time(), line.split()))  # noqa: PERF401  another thread reads it meanwhile


def run(ground: Ground, cordons: int, bursts: int) -> Iterator[Json]:
    """Make the chunk move so often for each reason; yield the seconds that it took, as far as they are known."""
    ground.pool(POOL, *ground.nodes)
    ground.create(endless("wanderer", POOL, ground.image, processors={"max": 1}))
    found: Json = {}
    with watching() as log:
        found["cordon"] = _told([_cordon(ground, log) for _ in range(cordons)])
        yield found
        found["burst"] = _told([_burst(ground, log) for _ in range(bursts)])
        yield found


def _node(ground: Ground) -> str:
    """Return the node of the chunk, once it works."""

    def chunk() -> Json | None:
        found = [pod for pod in ground.pods(KIND).values() if "deletionTimestamp" not in pod["metadata"]]
        return found[0] if len(found) == 1 else None

    ground.until(chunk, within=WITHIN, what="the guest to run")
    time.sleep(WORKS)
    return str(ground.until(chunk, within=WITHIN, what="the guest to run")["spec"]["nodeName"])


def _cordon(ground: Ground, log: Log) -> tuple[float, float] | None:
    node = _node(ground)
    try:
        told = time.time()
        ground.kubectl.run("cordon", node)
        return _move(ground, log, node, told)
    finally:
        ground.kubectl.run("uncordon", node)


def _burst(ground: Ground, log: Log) -> tuple[float, float] | None:
    time.sleep(QUIET)
    node = _node(ground)
    told = time.time()
    ground.burn(node, WITHIN)
    try:
        return _move(ground, log, node, told)
    finally:
        ground.douse(node)


def _move(ground: Ground, log: Log, node: str, told: float) -> tuple[float, float] | None:
    """Return the seconds until the decision was told, and until the rest runs on another node.

    None: it was not told to leave, because it had come to its end, or because its policy let it stay.
    """
    try:
        decided = ground.until(lambda: log.decided(told), within=DECIDES, what="the chunk to leave")
    except PunctualError:
        ground.say("the chunk stayed, or was at its end")
        return None
    at = ground.until(lambda: log.running(decided, not_on=node), within=WITHIN, what="the rest to run elsewhere")
    ground.say(f"decided after {decided - told:.1f} s, runs again after {at - told:.1f} s")
    return decided - told, at - told


def _told(tried: list[tuple[float, float] | None]) -> Json:
    moves = [one for one in tried if one is not None]
    return {
        "stayed": len(tried) - len(moves),
        "all": [[round(x, 3) for x in one] for one in moves],
        "decided": asdict(Spread.of([decided for decided, _ in moves])) if moves else None,
        "from_decision": asdict(Spread.of([runs - decided for decided, runs in moves])) if moves else None,
        "runs": asdict(Spread.of([runs for _, runs in moves])) if moves else None,
    }
