"""Leaves pods safe when the agent is gone: at a cap with which a chunk finishes in time.

A small process of its own in the agent's pod (``python -m punctual_agent.watchdog``), standard library only, so that
it survives ``kill -9`` of the agent and whatever breaks the agent's libraries. Each second it looks at the heartbeat;
while that is older than the lease it brings every pod of the state file to its rest cap, again and again, for something
else may write too.

It never fights a living agent: it writes only under the node's lock, which an agent holds for as long as it lives,
that of another pod included. An agent that hangs ends itself within the lease (``main``), which frees the lock.

Environment: STATE_DIR, CGROUP_ROOT. On SIGTERM it waits until the agent, which is told at the same time, has ended, so
that a pod's end is safe as well.
"""

import contextlib
import json
import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

from punctual_agent.actuator import Actuator, NodeLock
from punctual_agent.cgroup import ROOT, Cap, CgroupError, Hierarchy
from punctual_agent.state import State

EVERY: Final = 1.0
STATE_DIR: Final = "/run/punctual"
LAST_WATCH: Final = 20.0
"""Seconds after SIGTERM in which it still waits for the agent's end."""


class Watchdog:
    """Look at the heartbeat; put pods to rest when it is old."""

    def __init__(self, hierarchy: Hierarchy, state: State) -> None:
        self._actuator = Actuator(hierarchy)
        self._lock = NodeLock(hierarchy)
        self._state = state

    def step(self, now: float) -> dict[str, Cap] | None:
        """Give what was put to rest; None while there was nothing to do: the agent lives, ended in order, or never was.

        A heartbeat from the future is one of an earlier boot.
        """
        beat = self._state.heartbeat()
        if beat is None:
            return None
        saved = self._state.load()
        if 0 <= now - beat <= saved.lease:
            return None
        with self._lock.once() as mine:
            if not mine:
                return None
            rested = {}
            for uid, rest in saved.rests.items():
                if self._actuator.hold(uid, rest.cap).found:
                    rested[uid] = rest.cap
            return rested

    def watch(self, told: "queue.SimpleQueue[None]", clock: Callable[[], float] = time.monotonic) -> None:
        """Step each second until told to end and the agent is gone, its pods at rest."""
        resting = ended = False
        last = float("inf")
        while True:
            now = clock()
            rested = self.step(now)
            if bool(rested) != resting:
                resting = bool(rested)
                _say("watchdog_rests" if resting else "watchdog_idle", pods=len(rested or ()))
            if ended:
                last = min(last, now + LAST_WATCH)
                if rested is not None or self._state.heartbeat() is None or now >= last:
                    return
                time.sleep(EVERY)
            else:
                with contextlib.suppress(queue.Empty):
                    told.get(timeout=EVERY)
                    ended = True


def _say(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), file=sys.stderr, flush=True)  # noqa: T201  its log


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Run until SIGTERM; 1 where there is no cgroup hierarchy to write."""
    told: queue.SimpleQueue[None] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        # not an Event: its lock may be held by the very thread that the handler interrupts, for ever then
        signal.signal(number, lambda *_: told.put(None))
    try:
        hierarchy = Hierarchy(environ.get("CGROUP_ROOT") or ROOT)
    except CgroupError as error:
        _say("watchdog_cannot_start", error=str(error))
        return 1
    Watchdog(hierarchy, State(environ.get("STATE_DIR") or STATE_DIR)).watch(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
