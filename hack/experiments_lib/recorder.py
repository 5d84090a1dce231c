"""Watches pods of one node closely: their progress files, CPU counters and CPU limits. It runs in a pod on that node.

    python3 recorder.py '{"pods": {"UID": "name"}, "every": 0.05, "seconds": 60, "writes": [[2.0, "UID", 0.2, 0.1]]}'

A write gives a pod a limit of so many cores with a period, seconds after the beginning. Each line of the output is a
JSON list: ``["seen", time, name, units, CPU seconds, cores, period]``, or ``["written", time, name, cores, period]``.
It uses the agent's own modules, and no other package than Punctual's.
"""

import json
import os
import sys
import time
from typing import Any

from punctual_agent.actuator import Actuator
from punctual_agent.cgroup import Cap, Hierarchy
from punctual_agent.progress import PodProgress

CGROUP, PODS = "/host/cgroup", "/host/pods"


def main(order: dict[str, Any]) -> None:
    """Watch for so many seconds."""
    actuator = Actuator(Hierarchy(CGROUP))
    progress = {uid: PodProgress(uid) for uid in order["pods"]}
    writes = sorted(order.get("writes", ()))
    pods = os.open(PODS, os.O_RDONLY | os.O_DIRECTORY)
    began = due = time.time()
    while time.time() < began + order["seconds"]:
        while writes and time.time() >= began + writes[0][0]:
            _, uid, cores, period = writes.pop(0)
            actuator.hold(uid, Cap.of(cores, period))
            tell("written", order["pods"][uid], cores, period)
        for uid, name in order["pods"].items():
            progress[uid].read(pods, time.monotonic(), time.time())
            held = actuator.read(uid)
            if held.found and held.cap is not None and held.use is not None:
                tell("seen", name, progress[uid].done, held.use.cpu, held.cap.cores, held.cap.period / 1e6)
            elif held.found and held.use is not None:
                tell("seen", name, progress[uid].done, held.use.cpu, None, None)
        due += order["every"]
        time.sleep(max(0.0, due - time.time()))


def tell(what: str, *values: object) -> None:
    """Print a line."""
    print(json.dumps([what, time.time(), *values]), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
