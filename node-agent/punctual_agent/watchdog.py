"""Sets each pod's rest cap (a safe CPU limit) when the agent is gone, so that each chunk still finishes in time.

It is a small process in the agent's pod (``python -m punctual_agent.watchdog``). It needs the standard library only, so
it survives ``kill -9`` of the agent and errors in the agent's libraries. Each second it reads the heartbeat. While the
heartbeat is older than the lease, it brings every pod of the state file to its rest cap. It repeats this each second,
because other programs may write too.

It never competes with a running agent. It writes only under the node's lock, which an agent holds for its whole life,
as does an agent of another pod. An agent that hangs ends itself within the lease (``main``), which frees the lock.

Environment: STATE_DIR, CGROUP_ROOT. After SIGTERM, which the agent gets at the same time, it waits until the agent has
ended, so that the end of the pod is safe as well.
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
"""Seconds after SIGTERM for which the watchdog waits for the agent to end."""


class Watchdog:
    """Reads the heartbeat and applies the rest caps when it is old."""

    def __init__(self, hierarchy: Hierarchy, state: State) -> None:
        self._actuator = Actuator(hierarchy)
        self._lock = NodeLock(hierarchy)
        self._state = state

    def step(self, now: float) -> dict[str, Cap] | None:
        """Apply the rest caps if the heartbeat is old. Returns the caps by pod.

        None means that nothing was due: the agent runs, has shut down properly, or never started. A heartbeat in the
        future is from an earlier boot and counts as old.
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
            for uid, mode in saved.modes.items():
                if (cap := mode.rest) is not None and self._actuator.hold(uid, cap).found:
                    rested[uid] = cap
            return rested

    def watch(self, told: "queue.SimpleQueue[None]", clock: Callable[[], float] = time.monotonic) -> None:
        """Step each second until told to end and the agent is gone with its pods at their rest caps."""
        resting = ended = False
        last = float("inf")
        while True:
            now = clock()
            rested = self.step(now)
            if bool(rested) != resting:
                resting = bool(rested)
                _say("watchdog_activated" if resting else "watchdog_deactivated", pods=len(rested or ()))
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
    """Run until SIGTERM. Returns 1 if there is no writable cgroup hierarchy."""
    told: queue.SimpleQueue[None] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        # not an Event: the handler may interrupt the thread that holds the Event's lock, which would be a deadlock
        signal.signal(number, lambda *_: told.put(None))
    try:
        hierarchy = Hierarchy(environ.get("CGROUP_ROOT") or ROOT)
    except CgroupError as error:
        _say("watchdog_not_started", error=str(error))
        return 1
    Watchdog(hierarchy, State(environ.get("STATE_DIR") or STATE_DIR)).watch(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
