"""Phases on a real hierarchy: pods' slices come onto one grid, and nothing is lost however the agent ends.

Runs under pytest on this machine's hierarchy, v1 or v2, and as a plain script (standard library only) in the virtual
machine of ``test_vm.py``, which has v2. Needs root and a hierarchy that it may make folders in; else skipped, saying
so.
"""

# cgroup paths are strings, as in the module under test

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from real_node import ROOT, Node, eventually
from real_node.keeper import EVERY, PAIR, POINTS, Keeper

from punctual_agent.cgroup import Cap

EMULATED = "QEMU TCG" in Path("/proc/cpuinfo").read_text()
CLOSE = 0.01 if EMULATED else 0.0005
"""Seconds. The CPUs of the virtual machine stand still for milliseconds while their host does other work."""
LIMIT = Cap(60_000)
WITHIN = 100.0


class PhasesTest(unittest.TestCase):
    def node(self, *, processes: int = 1) -> Node:
        node = Node()
        self.addCleanup(node.remove)
        node.limit(node.pod, 80_000)
        node.limit(node.main, LIMIT.quota)
        self.weight(node, 50)
        for _ in range(processes):
            node.spin(node.main)
        return node

    def weight(self, node: Node, value: int | None = None) -> int:
        if value is not None:
            node.hierarchy.set_weight(node.pod, value)
        node.hierarchy.forget(node.pod)
        return node.hierarchy.weight(node.pod).value

    def capped(self, node: Node) -> str:
        return node.pod if node.hierarchy.version == "v2" else node.main

    def keeper(self, *nodes: Node, folder: str | None = None, begins: float | None = 0.0) -> Keeper:
        folder = folder or self.enterContext(tempfile.TemporaryDirectory())
        keeper = self.enterContext(Keeper(ROOT, folder, begins, [node.uid for node in nodes]))
        keeper.tell(PAIR)
        return keeper

    def comes(self, keeper: Keeper, true, within: float = WITHIN) -> bool:
        """Whether something comes true while the agent ticks."""

        def ticked() -> bool:
            keeper.tick()
            assert not keeper.faults
            time.sleep(EVERY)
            return true()

        return eventually(ticked, within)

    def gives_back(self, node: Node, keeper: Keeper) -> None:
        keeper.tell(None, aligned=False)
        for _ in range(2):
            keeper.tick()
        assert all(mode.released for mode in keeper.modes.values())
        caps = [node.hierarchy.cap(folder) for folder in (node.pod, node.main, node.sandbox)]
        assert caps == [Cap(80_000), LIMIT, Cap(None)]
        assert self.weight(node) == 50

    def test_two_pods_beside_load_come_onto_one_grid(self):
        nodes = [self.node(), self.node()]
        load = self.node(processes=2)
        keeper = self.keeper(*nodes, begins=time.monotonic())
        assert self.comes(keeper, lambda: keeper.on_grid(CLOSE)), keeper.errors
        assert load.processes[0].poll() is None
        finder = self.keeper(*nodes, begins=None)  # another one, which knows nothing and writes nothing
        keeper.phases.end()
        for node in nodes:
            assert self.weight(node) == node.hierarchy.weight(node.pod).highest
        keeper.lock.release()

        def same() -> bool:
            finder.begins = None
            found = [one.phase for one in finder.phases.known().values()]
            if len(found) < 2 or None in found or max(one.half for one in found) > 2 * CLOSE:
                return False
            off = (found[0].at - found[1].at + 0.05) % 0.1 - 0.05
            return abs(off) <= 2 * CLOSE + found[0].half + found[1].half

        assert self.comes(finder, same), finder.phases.known()

    def test_however_the_agent_is_killed_a_new_one_goes_on_and_gives_everything_back(self):
        for point in POINTS:
            with self.subTest(point=point):
                node = self.node()
                folder = self.enterContext(tempfile.TemporaryDirectory())
                begins = str(time.monotonic())
                words = [sys.executable, "-m", "real_node.keeper", ROOT, folder, begins, point, node.uid]
                path = os.pathsep.join(entry for entry in sys.path if entry)
                done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, timeout=WITHIN, check=False)
                assert done.returncode == -signal.SIGKILL
                left = node.hierarchy.cap(self.capped(node))
                if point not in ("saved", "weight written"):
                    assert abs(left.share - PAIR.share) < 1e-4, "the share is the same within a move"
                keeper = self.keeper(node, folder=folder)
                keeper.tick()
                assert node.hierarchy.cap(self.capped(node)) == PAIR
                assert keeper.drift == 0
                self.gives_back(node, keeper)
                keeper.lock.release()

    def test_without_what_was_saved_a_pod_never_has_more_than_before(self):
        node = self.node()
        first = self.keeper(node)
        first.tick()
        first.phases.end()
        first.lock.release()
        second = self.keeper(node)
        second.tell(Cap(30_000))
        second.tick()
        assert node.hierarchy.cap(self.capped(node)) == PAIR
        second.tell(None, aligned=False)
        for _ in range(2):
            second.tick()
        weight = node.hierarchy.weight(node.pod)
        assert (node.hierarchy.cap(self.capped(node)), weight.value) == (PAIR, weight.usual)

    def test_what_another_program_writes_is_restored_and_the_pod_comes_back_onto_its_grid(self):
        node = self.node()
        keeper = self.keeper(node, begins=time.monotonic())
        for number, rewrite in enumerate(
            (
                lambda: node.limit(self.capped(node), 70_000),
                lambda: self.weight(node, 40),
                lambda: node.limit(self.capped(node), 27_000, 90_000),
            )
        ):
            assert self.comes(keeper, lambda: keeper.on_grid(CLOSE)), keeper.errors
            rewrite()
            keeper.tick()
            assert keeper.drift == number + 1
            assert node.hierarchy.cap(self.capped(node)) == PAIR
            assert self.weight(node) == node.hierarchy.weight(node.pod).highest
        assert self.comes(keeper, lambda: keeper.on_grid(CLOSE)), keeper.errors

    def test_without_a_begin_phases_are_found_and_nothing_is_moved(self):
        nodes = [self.node(), self.node()]
        keeper = self.keeper(*nodes, begins=None)
        assert self.comes(
            keeper,
            lambda: len(known := keeper.phases.known()) == 2 and all(one.phase is not None for one in known.values()),
        )
        assert [one.moves for one in keeper.phases.known().values()] == [0, 0]
        assert not Path(keeper.state._moves).exists()

    def test_a_pod_that_ends_while_it_is_searched_is_no_fault(self):
        node = self.node()
        keeper = self.keeper(node)
        keeper.tick()
        assert eventually(lambda: keeper.phases.known() != {}, WITHIN)
        node.remove()
        key = next(iter(keeper.phases.known()))
        for _ in range(3):
            time.sleep(EVERY)
            assert not keeper.faults
        keeper.phases.follow({}, may_write=True)
        assert eventually(lambda: key not in keeper.phases._folders, WITHIN)


if __name__ == "__main__":
    unittest.main(verbosity=2)
