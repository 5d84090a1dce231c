"""The actuator on a real hierarchy: what the kernel refuses, caps silently, and really gives a busy process.

Runs under pytest on this machine's hierarchy, v1 or v2, and as a plain script (standard library only) in the virtual
machine of ``test_vm.py``, which has v2. Needs root and a hierarchy that it may make folders in; else skipped, saying
so.
"""

# cgroup paths are strings, as in the module under test
# ruff: noqa: PTH106, PTH110, PTH120

import itertools
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from real_node import MIB, ROOT, Node, eventually

from punctual_agent.actuator import Actuator, Held, NodeLock
from punctual_agent.cgroup import Cap, CgroupError, Hierarchy, VanishedError
from punctual_agent.disk import Disk
from punctual_agent.guest_share import EVERY, GuestShare
from punctual_agent.memory import Marks, memory_of, node_memory
from punctual_agent.modes.application import ApplicationMode
from punctual_agent.modes.hold import HoldMode
from punctual_agent.modes.mode import Moment
from punctual_agent.state import Saved, State


class ActuatorTest(unittest.TestCase):
    def node(self, driver: str = "cgroupfs") -> Node:
        node = Node(driver)
        self.addCleanup(node.remove)
        return node

    def settles(self, node: Node, *, above: float, below: float) -> bool:
        """Whether the pod's share, counted from now on, comes to lie between the two (cores).

        A process may overrun its quota until the next timer tick and then pays it back, and other work on the machine
        takes from it: what counts is where the average goes, after 0.2 s of CPU at least. It is begun anew now and
        then: what was taken once shall not count for ever.
        """
        before, began = node.hierarchy.use(node.pod, [node.main]), time.monotonic()

        def share_lies_between() -> bool:
            nonlocal before, began
            now, past = node.hierarchy.use(node.pod, [node.main]), time.monotonic() - began
            used = now.cpu - before.cpu
            if used >= 0.2 and above < used / past < below:
                return True
            if past > 20.0:
                before, began = now, time.monotonic()
            return False

        return eventually(share_lies_between)

    def throttled(self, node: Node) -> bool:
        """Whether the cap comes to hold the pod's processes back, as all three counters of the kernel say."""

        def counted() -> bool:
            folders = node.hierarchy.use(node.pod, [node.main]).folders.values()
            return any(one.seconds > 0 for one in folders) and any(0 < one.throttled <= one.periods for one in folders)

        return eventually(counted)

    def test_a_busy_process_gets_the_capped_share_at_either_period(self):
        for period in (0.1, 0.01):
            with self.subTest(period=period):
                node = self.node()
                actuator = Actuator(node.hierarchy)
                node.spin(node.main)
                held = actuator.hold(node.uid, Cap.of(0.3, period))
                assert held.found
                assert held.error is None
                assert held.cap == Cap(round(300000 * period), round(1000000 * period))
                assert self.settles(node, above=0.15, below=0.35)
                assert self.throttled(node), "the cap never held it"

    def test_a_wider_cap_gives_more_and_a_narrower_one_less(self):
        node = self.node("systemd")
        actuator = Actuator(node.hierarchy)
        node.spin(node.main)
        for cores, above in ((0.1, 0.05), (0.4, 0.15), (0.1, 0.05)):
            with self.subTest(cores=cores):
                actuator.hold(node.uid, Cap.of(cores, 0.02))
                assert self.settles(node, above=above, below=1.15 * cores)

    def test_no_change_of_cap_is_refused_when_pod_and_container_both_carry_one(self):
        caps = [Cap(30_000, 100_000), Cap(3_000, 10_000), Cap(6_000, 20_000), Cap(60_000, 100_000)]
        caps += [Cap(1_000, 1_000_000), Cap(1_000, 1_000), Cap(33_333, 100_000), Cap(6_667, 20_000)]
        for driver in ("cgroupfs", "systemd"):
            node = self.node(driver)
            for before, after in itertools.permutations(caps, 2):
                with self.subTest(driver=driver, before=before, after=after):
                    actuator = Actuator(node.hierarchy)
                    for cap in (before, after):
                        held = actuator.hold(node.uid, cap)
                        assert held.error is None
                        assert held.cap.share == cap.share
                        assert node.hierarchy.cap(node.main) == cap

    def keep(self, node: Node, application: ApplicationMode) -> tuple[ApplicationMode, Held]:
        """Look at an application's pod and bring it to its caps, as the agent does each second."""
        actuator = Actuator(node.hierarchy)
        held = actuator.read(node.uid)
        application, held.drift = application.seen(held.names)
        wanted = application.wanted(Moment(0.0, answered=True, begun=True))
        return application.wrote(actuator.keep(wanted, held)), held

    def test_no_change_of_an_applications_pair_is_refused_and_it_is_never_above_its_limits(self):
        limits = [(Cap(150_000), Cap(90_000)), (Cap(None), Cap(None)), (Cap(50_000, 50_000), Cap(30_000, 50_000))]
        pairs = [Cap(30_000), Cap(3_000, 10_000), Cap(60_000), Cap(1_000, 1_000), Cap(6_667, 20_000), Cap(None)]
        for outer, inner in limits:
            node = self.node("systemd")
            for folder, limit in ((node.pod, outer), (node.main, inner)):
                node.limit(folder, -1 if limit.quota is None else limit.quota, limit.period)
            application = ApplicationMode(None)
            for before, after in itertools.permutations(pairs, 2):
                with self.subTest(limit=inner, before=before, after=after):
                    for cap in (before, after):
                        application, held = self.keep(node, application.told(None if cap.quota is None else cap))
                        assert (held.error, held.drift) == (None, 0)
                        main, pod = node.hierarchy.cap(node.main), node.hierarchy.cap(node.pod)
                        assert main == (cap if cap.quota and cap.share <= inner.share else inner)
                        if node.hierarchy.version == "v1":
                            assert pod == outer, "on v1 the pod's own folder is left alone"
                        else:
                            assert pod == (cap if cap.quota and cap.share <= outer.share else outer)
            application, held = self.keep(node, application.told(None))
            assert application.released
            assert [node.hierarchy.cap(folder) for folder in (node.pod, node.main)] == [outer, inner]
            assert node.hierarchy.cap(node.sandbox) == Cap(None)

    def test_a_container_of_an_application_that_starts_later_is_held_and_gets_its_limit_back(self):
        node = self.node()
        node.limit(node.pod, 90_000)
        application, _ = self.keep(node, ApplicationMode(Cap(4_000, 20_000)))
        late = node.make(f"{node.pod}/late")
        node.limit(late, 60_000)  # v1 would refuse it in a pod that is narrowed
        application, held = self.keep(node, application)
        assert (node.hierarchy.cap(late), held.error, held.drift) == (Cap(4_000, 20_000), None, 0)
        self.keep(node, application.told(None))
        assert node.hierarchy.cap(late) == Cap(60_000)

    def test_a_resized_container_of_an_application_never_has_more_than_its_new_limit(self):
        node = self.node()
        node.limit(node.pod, 100_000)
        node.limit(node.main, 90_000)
        application, _ = self.keep(node, ApplicationMode(Cap.of(0.5, 0.02)))
        node.limit(node.main, 20_000)
        application, held = self.keep(node, application)
        assert (node.hierarchy.cap(node.main), held.drift, held.error) == (Cap(20_000), 1, None)
        node.limit(node.main, 80_000)
        application, held = self.keep(node, application)
        assert (node.hierarchy.cap(node.main), held.error) == (Cap.of(0.5, 0.02), None)
        self.keep(node, application.told(None))
        assert node.hierarchy.cap(node.main) == Cap(80_000)

    def test_a_limit_set_by_the_kubelet_follows_up_and_down(self):
        for cores in (0.1, 0.9):
            with self.subTest(cores=cores):
                node = self.node()
                node.limit(node.pod, 50_000)
                node.limit(node.main, 50_000)
                held = Actuator(node.hierarchy).hold(node.uid, Cap.of(cores, 0.1))
                assert held.error is None
                assert held.cap == Cap.of(cores, 0.1)
                assert held.drift == 0

    def test_a_container_with_a_limit_can_still_be_made_after_a_narrow_cap(self):
        node = self.node()
        node.limit(node.pod, 50_000)  # one limited container is to come; only the input step runs
        actuator = Actuator(node.hierarchy)
        assert actuator.hold(node.uid, Cap.of(0.1, 0.1)).error is None
        late = node.make(f"{node.pod}/late")
        node.limit(late, 50_000)  # EINVAL on v1 if the pod had been narrowed
        held = actuator.hold(node.uid, Cap.of(0.1, 0.1))
        assert node.hierarchy.cap(late) == Cap(10000)
        assert (held.cap, held.drift, held.writes["written"]) == (Cap(10000), 0, 1)

    def test_what_something_else_changed_is_put_back_and_counted_once(self):
        node = self.node()
        actuator = Actuator(node.hierarchy)
        cap = Cap.of(0.25, 0.05)
        assert actuator.hold(node.uid, cap).writes["written"] > 0
        assert actuator.hold(node.uid, cap).writes.total() == 0
        node.limit(node.main, -1)  # as a daemon-reload does
        held = actuator.hold(node.uid, cap)
        assert (held.drift, held.writes["written"], held.cap) == (1, 1, cap)
        assert actuator.hold(node.uid, cap).drift == 0
        assert actuator.hold(node.uid, Cap.of(0.5, 0.05)).drift == 0  # our own change is none

    def test_a_child_above_its_parent_is_refused_on_v1_and_taken_on_v2(self):
        node = self.node()
        node.limit(node.pod, 20_000)
        there = node.hierarchy.cap(node.main)
        if node.hierarchy.version == "v1":
            with self.assertRaises(CgroupError) as caught:  # noqa: PT027  no pytest in the virtual machine
                node.hierarchy.set_cap(node.main, Cap(30_000), there=there)
            assert caught.exception.kind == "refused"
        else:
            node.hierarchy.set_cap(node.main, Cap(30_000), there=there)
            assert node.hierarchy.cap(node.main) == Cap(30000)

    def test_saved_up_time_is_dropped_before_a_quota_below_it(self):
        node = self.node()
        name = "cpu.max.burst" if node.hierarchy.version == "v2" else "cpu.cfs_burst_us"
        if not os.path.exists(f"{node.main}/{name}"):
            self.skipTest(f"this kernel has no {name}")
        node.limit(node.main, 50_000)
        Path(node.main, name).write_text("40000")
        held = Actuator(node.hierarchy).hold(node.uid, Cap.of(0.2, 0.1))  # 20 ms is less than the 40 saved up
        assert held.error is None
        assert node.hierarchy.cap(node.main) == Cap(20000)
        assert int(Path(node.main, name).read_text()) == 0

    def test_folders_above_the_pod_are_never_written(self):
        node = self.node("systemd")
        above = [node.qos, node.kubepods]
        before = [node.hierarchy.cap(folder) for folder in above]
        actuator = Actuator(node.hierarchy)
        for cores in (0.1, 2.5, 0.3):
            actuator.hold(node.uid, Cap.of(cores, 0.02))
        assert [node.hierarchy.cap(folder) for folder in above] == before
        assert before == [Cap(None), Cap(None)]

    def test_a_pod_that_ends_vanishes_and_is_no_error(self):
        node = self.node()
        actuator = Actuator(node.hierarchy)
        assert actuator.hold(node.uid, Cap.of(0.5, 0.1)).found
        node.remove()
        held = actuator.hold(node.uid, Cap.of(0.4, 0.1))
        assert (held.found, held.writes["vanished"], held.error) == (False, 1, None)
        assert not actuator.hold(node.uid, Cap.of(0.4, 0.1)).found
        with self.assertRaises(VanishedError):  # noqa: PT027  no pytest in the virtual machine
            node.hierarchy.cap(node.pod)

    def test_a_container_that_ends_takes_nothing_from_its_pod(self):
        node = self.node()
        actuator = Actuator(node.hierarchy)
        actuator.hold(node.uid, Cap.of(0.5, 0.1))
        for tree in node.trees:
            os.rmdir(tree + node.main.removeprefix(node.hierarchy.cpu))
        held = actuator.hold(node.uid, Cap.of(0.2, 0.1))
        assert (held.found, held.error, held.cap) == (True, None, Cap(20000))

    def test_no_cap_can_be_told_too(self):
        node = self.node()
        actuator = Actuator(node.hierarchy)
        actuator.hold(node.uid, Cap.of(0.5, 0.02))
        held = actuator.hold(node.uid, Cap(None))
        assert (held.error, held.cap) == (None, None)
        assert node.hierarchy.cap(node.main) == Cap(None)

    def lower(self, node: Node, actuator: Actuator) -> Held:
        held = actuator.read(node.uid)
        actuator.lower(node.uid, held)
        assert held.error is None
        return held

    def test_a_guest_gets_the_lowest_priority_and_it_is_put_back_and_counted(self):
        node = self.node("systemd")
        cases = [("weight", 1, 100) if node.hierarchy.version == "v2" else ("shares", 2, 1024)]
        if os.path.exists(f"{node.pod}/cpu.idle"):
            cases.append(("idle", 1, 0))
        for name, least, other in cases:
            file = Path(node.pod, f"cpu.{name}")
            above = [Path(folder, file.name) for folder in (node.qos, node.kubepods)]
            before = [path.read_text() for path in above]
            actuator = Actuator(node.hierarchy)
            kind = "idle" if name == "idle" else "weight"
            with self.subTest(file=name), mock.patch.object(Hierarchy, "guest_priority", kind):
                held = self.lower(node, actuator)
                assert (int(file.read_text()), held.drift, held.writes["written"]) == (least, 0, 1)
                held = self.lower(node, actuator)
                assert (held.drift, held.writes.total()) == (0, 0)
                file.write_text(str(other))
                held = self.lower(node, actuator)
                assert (int(file.read_text()), held.drift, held.writes["written"]) == (least, 1, 1)
                assert [path.read_text() for path in above] == before

    def test_the_idle_class_is_used_where_the_kernel_has_it(self):
        node = self.node()
        kind = "idle" if os.path.exists(f"{node.pod}/cpu.idle") else "weight"
        assert node.hierarchy.find(node.uid) == node.pod
        assert node.hierarchy.guest_priority == kind

    def test_a_busy_guest_takes_almost_nothing_from_a_busy_sibling_on_its_cpu(self):
        node = self.node()
        cpu = min(os.sched_getaffinity(0))
        host = node.make(f"{node.qos}/pod-host/main")
        for folder in (node.main, host):
            node.spin(folder, cpu=cpu)
        self.lower(node, Actuator(node.hierarchy))

        def used() -> tuple[float, float]:
            return node.hierarchy.use(node.pod, []).cpu, node.hierarchy.use(os.path.dirname(host), []).cpu

        def guest_has_less_than_a_twentieth() -> bool:
            guest, other = (now - past for now, past in zip(used(), before, strict=True))
            return other > 0.5 and guest < 0.05 * other

        before = used()
        assert eventually(guest_has_less_than_a_twentieth)

    def test_the_share_of_guests_follows_the_weights_that_the_kernel_has(self):
        for driver, folder in (("cgroupfs", "besteffort"), ("systemd", "kubepods-besteffort.slice")):
            node = self.node(driver)
            guests = node.make(f"{node.kubepods}/{folder}")
            file, least, other = ("weight", 1, 100) if node.hierarchy.version == "v2" else ("shares", 2, 1024)
            with self.subTest(driver=driver), mock.patch.object(Hierarchy, "kubepods", [node.kubepods]):
                looked = GuestShare(node.hierarchy)
                with self.assertLogs("punctual_agent.guest_share", "WARNING"):
                    looked.look(0.0, guests=True)
                assert looked.part == 0.5, "both are new folders"
                Path(guests, f"cpu.{file}").write_text(str(least))
                looked.look(EVERY, guests=True)
                assert looked.part == least / (least + other)

    def test_a_guests_pod_that_ends_before_its_priority_is_written_is_no_error(self):
        node = self.node()
        actuator = Actuator(node.hierarchy)
        held = actuator.read(node.uid)
        node.remove()
        actuator.lower(node.uid, held)
        assert (held.found, held.writes["vanished"], held.error) == (False, 1, None)

    def test_the_kernel_tells_what_a_pod_holds_and_what_could_be_taken_from_it(self):
        node = self.node()
        before = memory_of(node.hierarchy, node.pod)
        assert before.charged < 16 * MIB
        assert node.fill(node.main, held=64, free=96).stdout.readline() == b"filled\n"
        found = memory_of(node.hierarchy, node.pod)
        assert 64 * MIB <= found.held <= found.used < 96 * MIB
        assert found.charged - found.used >= 90 * MIB
        whole = node_memory(node.hierarchy)
        assert 0 < whole.available < whole.total

    def marked(self, node: Node, marks: Marks, mark: int) -> None:
        """Write a mark, and wait until the kernel has taken what it can."""
        marks.ask(node.pod, mark)
        done = []
        assert eventually(lambda: bool(done.extend(marks.done()) or done))
        assert done == [(node.pod, mark, None)]

    def test_a_mark_is_written_and_removed_and_no_folder_above_is(self):
        node = self.node("systemd")
        assert node.hierarchy.find(node.uid) == node.pod
        marks = Marks(node.hierarchy)
        assert marks.kind == ("high" if node.hierarchy.version == "v2" else "soft")
        folders = [node.qos, node.kubepods, node.main]
        before = [marks.mark_of(folder) for folder in (node.pod, *folders)]
        assert min(before) > 1 << 60
        self.marked(node, marks, 48 * MIB)
        assert [marks.mark_of(folder) for folder in (node.pod, *folders)] == [48 * MIB, *before[1:]]
        marks.remove(node.pod)
        assert [marks.mark_of(folder) for folder in (node.pod, *folders)] == before

    def test_a_mark_takes_from_a_guest_what_the_kernel_can_take_and_leaves_it_what_it_holds(self):
        node = self.node()
        marks = Marks(node.hierarchy)
        assert node.hierarchy.find(node.uid) == node.pod
        if marks.kind != "high":
            self.skipTest("cgroup v1 takes nothing before the node has no free memory")
        guest = node.fill(node.main, held=64, free=96)
        assert guest.stdout.readline() == b"filled\n"
        self.marked(node, marks, 80 * MIB)
        assert eventually(lambda: memory_of(node.hierarchy, node.pod).charged <= 80 * MIB)
        assert memory_of(node.hierarchy, node.pod).held >= 64 * MIB
        assert guest.poll() is None

    def test_a_guest_that_fills_memory_is_slowed_at_its_mark_and_goes_on_when_it_is_removed(self):
        node = self.node()
        marks = Marks(node.hierarchy)
        assert node.hierarchy.find(node.uid) == node.pod
        if marks.kind != "high":
            self.skipTest("cgroup v1 slows nothing")
        self.marked(node, marks, 64 * MIB)
        guest = node.fill(node.main, held=256, free=0)
        events = Path(node.pod, "memory.events")

        def slowed() -> int:
            return int(dict(line.split() for line in events.read_text().splitlines())["high"])

        assert eventually(lambda: slowed() > 100)
        assert 48 * MIB < memory_of(node.hierarchy, node.pod).charged < 128 * MIB
        assert guest.poll() is None
        marks.remove(node.pod)
        assert guest.stdout.readline() == b"filled\n"
        assert memory_of(node.hierarchy, node.pod).held >= 256 * MIB

    def test_a_guest_gets_the_lowest_disk_priority_where_the_kernel_has_one_and_it_is_put_back_and_counted(self):
        node = self.node("systemd")
        actuator, disk = Actuator(node.hierarchy), Disk(node.hierarchy)
        name = "blkio" if node.hierarchy.version == "v1" else "io"
        weights = {f"{name}.bfq.weight", f"{name}.weight"}

        def said() -> dict[Path, str]:
            folders = (node.kubepods, node.qos, node.pod, node.main, node.sandbox)
            paths = [Path(node.hierarchy.disk + folder.removeprefix(node.hierarchy.cpu)) for folder in folders]
            files = [path / file for path in paths for file in (*weights, f"{name}.prio.class")]
            return {file: file.read_text().split("\n")[0] for file in files if file.exists()}

        def kind(file: Path) -> str:
            return "weight" if file.name in weights else "class"

        def lower() -> tuple[Held, dict[Path, str]]:
            held = actuator.read(node.uid)
            disk.lower([held])
            assert held.trouble is None
            return held, {file: text for file, text in said().items() if text != before[file]}

        before = said()
        held, changed = lower()
        own = {"weight": {Path(node.pod).name}, "class": {Path(node.main).name, Path(node.sandbox).name}}
        wanted = {file for file in before if file.parent.name in own[kind(file)]}
        assert changed.keys() == wanted
        assert {text.removeprefix("default ") for text in changed.values()} <= {"1", "idle"}
        assert set(disk.kinds) == {kind(file) for file in before}
        assert (held.writes.total(), held.drift) == (len(wanted), 0)
        assert lower()[0].writes.total() == 0
        if not before:
            self.skipTest("this kernel has no disk priorities for cgroups: nothing was written")
        for file in changed:
            file.write_text(before[file].removeprefix("default "))
        held, again = lower()
        assert again == changed
        assert held.drift == len(wanted)

    def test_the_node_tells_its_use(self):
        node = self.node()
        first = node.hierarchy.node()
        node.spin(node.main)
        assert eventually(lambda: node.hierarchy.node().cpu > first.cpu + 0.1)
        assert first.pressure is None or 0 <= first.pressure <= 100
        assert 0 < first.cores <= (os.cpu_count() or 1)
        assert node.hierarchy.writable

    def test_a_watchdog_of_its_own_process_puts_pods_to_rest_when_the_agent_was_killed(self):
        node = self.node()
        folder = self.enterContext(tempfile.TemporaryDirectory())
        state = State(folder)
        state.save(Saved(3, 2.0, {node.uid: HoldMode(0.35, 0.05)}))
        agent = subprocess.Popen([sys.executable, "-c", _AGENT, ROOT, folder, node.uid], stdout=subprocess.PIPE)
        node.processes.append(agent)
        assert agent.stdout.readline() == b"held\n"
        environ = {**os.environ, "STATE_DIR": folder, "CGROUP_ROOT": ROOT}
        watchdog = subprocess.Popen(
            [sys.executable, "-m", "punctual_agent.watchdog"], env=environ, stderr=subprocess.DEVNULL
        )
        node.processes.append(watchdog)
        told, rest = Cap.of(0.2, 0.05), Cap.of(0.35, 0.05)
        assert not eventually(lambda: node.hierarchy.cap(node.main) != told, within=3), "fought a living agent"
        agent.kill()
        agent.wait()
        agent.stdout.close()
        assert eventually(lambda: node.hierarchy.cap(node.main) == rest)
        lock = NodeLock(node.hierarchy)
        assert eventually(lock.take)
        lock.release()
        watchdog.terminate()
        assert watchdog.wait(120) == 0


# the part of an agent that a watchdog sees: the lock, the heartbeat, a cap held
_AGENT = """
import sys, time
from punctual_agent.actuator import Actuator, NodeLock
from punctual_agent.cgroup import Cap, Hierarchy
from punctual_agent.state import State
root, folder, uid = sys.argv[1:]
hierarchy = Hierarchy(root)
lock = NodeLock(hierarchy)
assert lock.take()
actuator = Actuator(hierarchy)
state = State(folder)
while True:
    state.beat(time.monotonic())
    actuator.hold(uid, Cap.of(0.2, 0.05))
    print("held", flush=True)
    time.sleep(0.5)
"""


if __name__ == "__main__":
    unittest.main(verbosity=2)
