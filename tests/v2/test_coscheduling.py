"""What aligned slices are worth: two ranks that wait for each other by spinning, each on a CPU with a busy neighbour.

Runs on this machine's hierarchy, v1 or v2. It does not run in the virtual machine of ``test_vm.py``: emulated CPUs are
threads that wait for each other. Needs root, two CPUs and a hierarchy that it may make folders in; else skipped, saying
so.
"""

import os
import statistics
import struct
import sys
import tempfile
import time
import unittest
from pathlib import Path

from real_node import ROOT, Node, eventually
from real_node.keeper import EVERY, Keeper

from punctual_agent.cgroup import Cap

PAIR = Cap(50_000, 100_000)
GAIN = 1.2
BLOCKS = range(3, 16)
"""Pairs of runs at least, and at most. Other work on the machine tears slices, so more of them are needed then."""
RUN = 1.5
WITHIN = 60.0

# both begin an iteration when both have ended the one before
_RANK = """
import mmap, os, struct, sys, time
shared = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4096)
me, other, done = 8 * int(sys.argv[2]), 8 * (1 - int(sys.argv[2])), 0
while True:
    end = time.thread_time() + 0.001
    while time.thread_time() < end:
        pass
    done += 1
    struct.pack_into("q", shared, me, done)
    while struct.unpack_from("q", shared, other)[0] < done:
        pass
"""


class CoschedulingTest(unittest.TestCase):
    def setUp(self):
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2:
            self.skipTest("needs two CPUs")
        self.shared = Path(self.enterContext(tempfile.TemporaryDirectory()), "shared")
        self.shared.write_bytes(bytes(4096))
        # other work of the machine would tear the slices, and keep this process from steering them
        self.addCleanup(os.setpriority, os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        self.nodes = []
        for rank, cpu in enumerate(cpus[:2]):
            pod = Node()
            self.addCleanup(pod.remove)
            pod.outweigh()
            pod.spin(pod.make(f"{pod.qos}/pod-neighbour/main"), cpu=cpu)
            pod.start([sys.executable, "-c", _RANK, str(self.shared), str(rank)], pod.main, cpu=cpu)
            self.nodes.append(pod)
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.keeper = self.enterContext(Keeper(ROOT, folder, time.monotonic(), [node.uid for node in self.nodes]))
        self.keeper.tell(PAIR)

    def iterations(self) -> int:
        return min(struct.unpack_from("qq", self.shared.read_bytes()))

    def rate(self, *, apart: float) -> float:
        """Iterations a second while the second rank's slices begin so much later, seconds."""
        self.keeper.offsets[self.nodes[1].uid] = apart

        def on_grid() -> bool:
            self.keeper.tick()
            time.sleep(EVERY)
            return self.keeper.on_grid(0.002)

        assert eventually(on_grid, WITHIN), self.keeper.errors
        before, began = self.iterations(), time.monotonic()
        time.sleep(RUN)
        return (self.iterations() - before) / (time.monotonic() - began)

    def test_ranks_that_spin_run_faster_when_their_slices_begin_together(self):
        gains = []
        while len(gains) < BLOCKS.start or statistics.median(gains) < GAIN:
            assert len(gains) < BLOCKS.stop, gains
            runs = {apart: self.rate(apart=apart) for apart in ((0.0, 0.05), (0.05, 0.0))[len(gains) % 2]}
            gains.append(runs[0.0] / max(runs[0.05], 1e-9))
