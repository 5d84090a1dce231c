"""Finds when the kernel begins the slices of aligned pods, and moves them onto their grids.

:class:`punctual.control.phase.PhaseControl` decides what to do for each cgroup folder, and a thread of its own does it
at the right moment. It reads ``nr_periods`` and, for one period, writes a pair of the same share. In between it sleeps:
a pod on its grid costs two reads each ten seconds. At most FINDS folders are searched at a time.

The main thread tells what to steer each second (:meth:`Phases.follow`), and never waits for this one. Before it writes,
this thread saves the pairs that may then be in force, so that no later agent takes one for a limit. It writes only
while the agent holds the node's lock, and only in place of the pair that it expects: whatever else is in force is the
main thread's, or another program's.

If the process ends within a move, the folder keeps its share, with slices that begin at other moments, until the next
agent writes the pair again and searches. A fault of this thread is put into the main thread's inbox, and ends the
agent.
"""

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import floor
from typing import Final, NamedTuple

from punctual.control.phase import Grid, Phase, PhaseControl, Read, Reading, Wait, Write
from punctual_agent.actuator import Actuator
from punctual_agent.cgroup import Cap
from punctual_agent.modes.application import Move
from punctual_agent.state import State

FINDS: Final = 4
IDLE: Final = 1.0
"""Longest sleep, seconds."""
CLOSE: Final = 0.002
"""A sleep of at most so many seconds cannot be woken from, and ends on time."""
LOST: Final = 0.05
"""Seconds after which a step that could not be done is tried again."""
LOOKS: Final = 2
"""Looks after which the end of a move is known: the first one may have read the folder before it."""
_PERIODS: Final = re.compile(rb"^nr_periods (\d+)", re.MULTILINE)


class Target(NamedTuple):
    """What one folder of an aligned pod is to have."""

    path: str
    pair: Cap
    begins: float | None
    """When one of its periods is to begin, on CLOCK_MONOTONIC. None: that is only found out."""
    bound: float
    """So far may that be wrong, seconds."""
    drift: int
    """How often another program has changed the pod: each time, its phase may be another one."""
    runs: bool
    """Its processes ran in the last second. The timer of a folder that is idle does not run."""


class Steered(NamedTuple):
    """What is known of one folder."""

    period: float
    phase: Phase | None
    error: float | None
    moves: int
    failed: int


Key = tuple[str, str]
"""A pod's uid, and the name of one of its folders."""


@dataclass(slots=True)
class _Folder:
    """One folder that is steered."""

    target: Target
    control: PhaseControl
    handle: int
    due: float = 0.0
    in_force: Cap = field(init=False)

    def __post_init__(self) -> None:
        self.in_force = self.target.pair

    @property
    def begins_search(self) -> bool:
        return self.control.stage is None and self.control.phase is None


class Phases:
    """The phases of one node's aligned pods."""

    def __init__(self, actuator: Actuator, state: State, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._actuator = actuator
        self._state = state
        self._clock = clock
        self._changed = threading.Condition()
        # shared by both threads, and changed under the condition
        self._targets: dict[Key, Target] = {}
        self._may_write = False
        self._ended = False
        self._moves: dict[Key, Move] = {}
        self._over: dict[Key, int] = {}
        """Moves that ended, and how many looks were taken since."""
        self._known: dict[Key, Steered] = {}
        # the thread's own
        self._folders: dict[Key, _Folder] = {}
        self._taken: Mapping[Key, Target] = self._targets
        self._filed = True
        """Moves may be in the file; at first those of an agent before this one."""

    def follow(self, targets: Mapping[Key, Target], *, may_write: bool) -> None:
        """Steer these folders and no others. Without the right to write, they are left as they are.

        Call it after what the last look has found was saved: a move that is known from there needs no file any more.
        """
        with self._changed:
            for key, looks in list(self._over.items()) if may_write else ():
                if looks >= LOOKS or not (key in targets or key in self._targets):
                    self._moves.pop(key, None)
                    del self._over[key]
            self._targets, self._may_write = dict(targets), may_write
            self._changed.notify()

    def moves(self, uid: str) -> dict[str, Move]:
        """Return the moves of a pod's folders that may have been under way since the last look, or are in the file.

        Call it after its caps were read.
        """
        with self._changed:
            found = {key: move for key, move in self._moves.items() if key[0] == uid}
            for key in found.keys() & self._over.keys():
                self._over[key] += 1
            return {name: move for (_, name), move in found.items()}

    def known(self) -> dict[Key, Steered]:
        """Return what is known of each folder."""
        with self._changed:
            return dict(self._known)

    def end(self) -> None:
        """Let the thread end what is under way. It writes nothing after this."""
        with self._changed:
            self._ended = True
            self._changed.notify()
            for key, move in self._moves.items():
                if key not in self._over and key in self._targets:
                    self._actuator.swap(self._targets[key].path, move.pair, move.after)

    def run(self) -> None:
        """Steer until :meth:`end`."""
        try:
            while self._renew():
                self._step()
        finally:
            for key in list(self._folders):
                self._drop(key)

    # -- the thread's own

    def _renew(self) -> bool:
        """Take what the main thread wants. Returns whether to go on."""
        with self._changed:
            targets, ended = self._targets, self._ended
            if targets is self._taken:
                return not ended
            self._known = {key: known for key, known in self._known.items() if key in targets}
            if self._filed and self._may_write and not ended and not self._moves:
                # in here, because after the end the file may be another agent's
                with contextlib.suppress(OSError):  # it is tried again
                    self._state.clear_moves()
                    self._filed = False
        self._taken = targets
        for key in self._folders.keys() - targets.keys():
            self._give_back(key)
            self._drop(key)
        for key, target in targets.items():
            one = self._folders.get(key)
            if one is not None and one.target is target:
                continue
            if one is None or one.target.path != target.path:
                if one is not None:
                    self._give_back(key)
                self._drop(key)
                self._open(key, target)
                continue
            if (one.target.pair, one.target.drift) != (target.pair, target.drift):
                self._give_back(key)
                one.control.forget()
                one.in_force = target.pair
            if one.target.begins != target.begins:
                one.due = 0.0
            one.target = target
            one.control.aim(_grid(target), target.bound)
            self._tell(key, one)
        return not ended

    def _tell(self, key: Key, one: _Folder) -> None:
        with self._changed:
            control = one.control
            self._known[key] = Steered(control.grid.period, control.phase, control.error, control.moves, control.failed)

    def _open(self, key: Key, target: Target) -> None:
        with contextlib.suppress(OSError):  # a container that ended
            handle = os.open(f"{target.path}/cpu.stat", os.O_RDONLY | os.O_CLOEXEC)
            self._folders[key] = _Folder(target, PhaseControl(_grid(target)), handle)

    def _drop(self, key: Key) -> None:
        if (one := self._folders.pop(key, None)) is not None:
            os.close(one.handle)

    def _step(self) -> None:
        """Do what is due next, or sleep until then."""
        now = self._clock()
        searching = sum(one.control.searching for one in self._folders.values())
        due, next_key = now + IDLE, None
        for key, one in self._folders.items():
            waits = one.control.stage is None and not one.target.runs
            if waits or (one.begins_search and searching >= FINDS):
                continue
            if one.due < due:
                due, next_key = one.due, key
        if next_key is None or due > now:
            self._sleep(due - now)
        else:
            self._do(next_key, self._folders[next_key])

    def _sleep(self, seconds: float) -> None:
        if seconds <= CLOSE:
            time.sleep(seconds)
            return
        with self._changed:
            self._changed.wait(seconds - CLOSE / 2)

    def _do(self, key: Key, one: _Folder) -> None:
        reading = None
        while True:
            match one.control.step(self._clock(), reading):
                case Wait(until):
                    one.due = until
                    self._tell(key, one)
                    return
                case Read():
                    reading = self._read(one)
                    if reading is None:
                        one.due = self._clock() + IDLE
                        return
                case Write(period):
                    reading = None
                    if not self._write(key, one, period):
                        one.control.unwritten()
                        one.due = self._clock() + LOST
                        return

    def _read(self, one: _Folder) -> Reading | None:
        before = self._clock()
        try:
            text = os.pread(one.handle, 4096, 0)
        except OSError:  # the folder is gone
            return None
        after = self._clock()
        found = _PERIODS.search(text)
        return Reading(before, after, int(found[1])) if found else None

    def _write(self, key: Key, one: _Folder, period: float) -> bool:
        """Write the pair of a move, or after it the pair that the folder is to have. Returns whether it is in force."""
        pair = one.target.pair
        wanted = pair if period == one.control.grid.period else _pair(one.control.grid.cores, period)
        if wanted == one.in_force:
            return True
        if wanted != pair:
            with self._changed:
                if not self._may_write or self._ended:
                    return False
                self._moves[key] = Move(wanted, pair)
                self._over.pop(key, None)
            try:
                self._save()
            except OSError:  # the main thread says so: it saves there, too
                with self._changed:
                    self._over[key] = 0
                return False
        with self._changed:
            if self._ended or not self._actuator.swap(one.target.path, one.in_force, wanted):
                if key in self._moves:
                    self._over[key] = 0
                one.in_force = pair
                return False
            if wanted == pair:
                self._over[key] = 0
        one.in_force = wanted
        return True

    def _give_back(self, key: Key) -> None:
        """Break off a move: the folder is not to be steered, or is to have another pair."""
        one = self._folders[key]
        if one.in_force != one.target.pair:
            with self._changed:
                self._actuator.swap(one.target.path, one.in_force, one.target.pair)
                self._over[key] = 0
            one.in_force = one.target.pair

    def _save(self) -> None:
        moves: dict[str, dict[str, tuple[Cap, ...]]] = {}
        with self._changed:
            for (uid, name), move in self._moves.items():
                steps = (Cap(None, pair.period) for pair in move)  # v1 takes a pair in steps
                moves.setdefault(uid, {})[name] = (*move, *steps)
        self._filed = True
        self._state.save_moves(moves)


def _grid(target: Target) -> Grid:
    return Grid(target.begins, target.pair.period / 1e6, target.pair.share)


def _pair(cores: float, period: float) -> Cap:
    micros = round(period * 1e6)
    return Cap(floor(cores * micros), micros)  # v1 refuses a share above the pod's


class PhaseThread(threading.Thread):
    """Thread that steers. What ends it before :meth:`Phases.end` is a fault, which is put into the inbox."""

    def __init__(self, phases: Phases, fail: Callable[[BaseException], None]) -> None:
        super().__init__(name="phases", daemon=True)
        self._phases = phases
        self._fail = fail

    def run(self) -> None:
        """Steer until the phases end."""
        try:
            self._phases.run()
        except BaseException as error:  # noqa: BLE001  passed to the main thread, which it ends
            self._fail(error)
