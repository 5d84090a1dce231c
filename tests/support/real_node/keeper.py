"""What an agent does each second with applications' pods, without an operator. It can end where a test wants.

python -m real_node.keeper ROOT FOLDER BEGINS POINT UID...     tick until killed; at POINT it kills itself
"""

import contextlib
import os
import signal
import sys
import threading
import time
from typing import Self

from punctual_agent.actuator import Actuator, NodeLock
from punctual_agent.cgroup import Cap, Hierarchy
from punctual_agent.modes.application import ApplicationMode
from punctual_agent.modes.mode import Moment
from punctual_agent.phases import Phases, PhaseThread, Target
from punctual_agent.state import Saved, State

PAIR = Cap(20_000, 100_000)
EVERY = 0.2


class Keeper:
    """Aligned pods that all have the pair and are to begin at one moment. None: their phases are only found."""

    def __init__(self, root: str, folder: str, begins: float | None, uids: list[str]) -> None:
        self.hierarchy, self.begins = Hierarchy(root), begins
        self.state = State(folder)
        self.lock = NodeLock(self.hierarchy)
        self.actuator = Actuator(self.hierarchy)
        self.phases = Phases(self.actuator, self.state)
        known = self.state.load().modes
        self.modes = {uid: known.get(uid, ApplicationMode(None)) for uid in uids}
        self.offsets = dict.fromkeys(uids, 0.0)
        self.drift = 0
        self.faults: list[BaseException] = []
        self.thread = PhaseThread(self.phases, self.faults.append)

    def tell(self, cap: Cap | None, *, aligned: bool = True) -> None:
        self.modes = {uid: mode.told(cap, aligned=aligned) for uid, mode in self.modes.items()}

    def tick(self) -> None:
        assert self.lock.take()
        looks = {uid: self.actuator.read(uid) for uid in self.modes}
        for uid, held in looks.items():
            mode = self.modes[uid].moving(self.phases.moves(uid))
            if mode.weighed:
                self.actuator.weigh(uid, held)
            self.modes[uid], drift = mode.seen(held.names, held.weight)
            self.drift += drift
        self.state.save(Saved(1, 5.0, {uid: mode.saved for uid, mode in self.modes.items()}))
        targets = {}
        for uid, held in looks.items():
            mode = self.modes[uid]
            if (weight := mode.weight) is not None:
                self.actuator.weigh(uid, held, weight)
            caps = self.actuator.keep(mode.wanted(Moment(0.0, answered=True, begun=True)), held)
            self.modes[uid] = mode = mode.wrote(caps, held.weight)
            assert held.error is None, held.error
            for name in caps:
                if mode.aligned and mode.cap is not None and mode.holds(name) and "sandbox" not in name:
                    targets[uid, name] = Target(
                        held.folder + name, mode.cap, self._begins(uid), 0.0, self.drift, runs=True
                    )
        self.phases.follow(targets, may_write=True)

    def _begins(self, uid: str) -> float | None:
        return None if self.begins is None else self.begins + self.offsets[uid]

    @property
    def errors(self) -> dict[str, tuple[float, float] | None]:
        """By how much each pod is off the grid, and how well that is known; None: it is not."""
        found = dict.fromkeys(self.modes)
        for (uid, _), one in self.phases.known().items():
            if one.error is not None and one.phase is not None:
                found[uid] = one.error, one.phase.half
        return found

    def on_grid(self, within: float) -> bool:
        """Whether all are on the grid, as far as is known, to so many seconds."""
        return all(one is not None and abs(one[0]) <= within and one[1] <= within for one in self.errors.values())

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.phases.end()
        self.thread.join()
        self.lock.release()
        assert not self.faults, self.faults


POINTS = {
    "find": (Phases, "_read", 5),
    "move saved": (State, "save_moves", 1),
    "move written": (Actuator, "swap", 1),
    "move ended": (Actuator, "swap", 2),
    "weight written": (Hierarchy, "set_weight", 1),
    "cap written": (Hierarchy, "set_cap", 1),
    "saved": (State, "save", 1),
}
"""Immediately after which step, and after how many of them."""


def _killed_at(point: str) -> None:
    """Let this process be killed immediately after a step."""

    def after(owner: type, name: str, times: int) -> None:
        real, count, lock = getattr(owner, name), [0], threading.Lock()

        def wrapped(*args: object, **more: object) -> object:
            result = real(*args, **more)
            with lock:
                count[0] += 1
                if count[0] == times:
                    os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, wrapped)

    after(*POINTS[point])


def main() -> None:
    root, folder, begins, point, *uids = sys.argv[1:]
    _killed_at(point)
    keeper = Keeper(root, folder, float(begins), uids)
    keeper.tell(PAIR)
    with keeper, contextlib.suppress(KeyboardInterrupt):
        while True:
            keeper.tick()
            time.sleep(EVERY)


if __name__ == "__main__":
    main()
