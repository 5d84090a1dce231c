"""The memory of aligned pods, as the kernel's files on v1 and v2 tell of it, and what is reported."""

import pytest

from punctual.linger.paging import LASTING
from punctual.wire import ApplicationOrder, GridOrder, HoldOrder, MemoryShort, SetPoint, SetPoints
from punctual_agent import memory
from punctual_agent.state import State

A, B = ("0aaf2a3c-18c2-4a3e-9d5e-00000000000" + n for n in "12")
MIB = 1 << 20
WATCH = ApplicationOrder(grid=GridOrder(slice=0.03), watch_memory=True)
UNALIGNED = ApplicationOrder()


class Node:
    """A node with an agent, and an operator that answers each second. Half of its memory is available."""

    def __init__(self, tree, folder):
        self.tree, self.folder, self.now = tree, folder, 100.0
        self.orders = {A: WATCH}
        self.agent = tree.agent(State(folder / "agent", folder / "node"), self.now)
        self.available(512)

    def add(self, uid=A, *, used=47, limit=48):
        pod = self.tree.pod(uid, quota=90_000)
        for folder in (pod, *self.containers(pod)):
            self.tree.hold(folder, held=used * MIB)
            self.tree.limit_memory(folder, limit and limit * MIB)
        return pod

    @staticmethod
    def containers(pod):
        return sorted(path for path in pod.iterdir() if path.is_dir())

    def available(self, mib):
        (self.folder / "meminfo").write_text(f"MemTotal: {1 << 20} kB\nMemFree: 1 kB\nMemAvailable: {mib << 10} kB\n")

    def look(self):
        """Return what is reported of the memory of pods, by pod; those that are fine are left out."""
        self.now += 1.0
        report = self.agent.tick(self.now)
        pods = [SetPoint(uid=uid, cap=0.3, rest_cap=0.3, mode=mode) for uid, mode in self.orders.items()]
        self.agent.tell(SetPoints(epoch=1, pods=pods, applications_complete=True), self.now)
        return {pod.uid: pod.memory for pod in report.pods if pod.memory is not None}


@pytest.fixture
def node(tree, tmp_path, monkeypatch):
    for name in ("agent", "node"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(memory, "MEMINFO", str(tmp_path / "meminfo"))
    made = Node(tree, tmp_path)
    yield made
    made.agent._lock.release()


def pages(node, pod, seconds, *, faults=60, at_limit=3, begin=1000):
    """Let a pod fault at its limit for some seconds. Returns what is reported each second."""
    found = []
    for n in range(seconds):
        node.tree.page(pod, faults=begin + n * faults, at_limit=begin + n * at_limit)
        found.append(node.look())
    return found


SHORT = MemoryShort(used=47 * MIB, limit=48 * MIB, cause="pod")


def test_a_pod_that_faults_at_its_limit_is_reported_after_two_seconds_and_until_it_ends(node):
    pod = node.add()
    node.look()
    assert pages(node, pod, 5) == [{}] * (1 + round(LASTING) - 1) + [{A: SHORT}] * 3
    assert node.look() == {}, "the counters stand still"
    node.tree.remove(pod)
    assert node.look() == {}


def test_many_faults_alone_are_those_of_a_mapped_file(node):
    pod = node.add()
    node.look()
    assert pages(node, pod, 5, faults=5000, at_limit=0) == [{}] * 5
    assert pages(node, pod, 5, faults=0, at_limit=90, begin=900_000) == [{}] * 5, "cache of files at its limit"


def test_counters_that_fall_and_files_that_make_no_sense_tell_nothing(node):
    pod = node.add()
    node.look()
    pages(node, pod, 3)
    assert pages(node, pod, 2, begin=0) == [{}, {}], "a container was restarted"
    here = node.tree.memory(pod)
    for name in ("memory.stat", "memory.events", "memory.failcnt", "memory.pressure"):
        for text in ("", "max\n", "pgmajfault many\ntotal_pgmajfault -1\nmax \n", "full avg10=1.2.3 avg60=0 total=9\n"):
            node.tree.write(here / name, text)
            assert node.look() == {}


def test_a_kernel_that_counts_no_memory_is_no_trouble(node):
    pod = node.add()
    node.look()
    for folder in (pod, *node.containers(pod)):
        for file in node.tree.memory(folder).glob("memory.*"):
            file.unlink()
    assert [node.look() for _ in range(4)] == [{}] * 4
    node.available(10)
    assert [node.look() for _ in range(5)][-1] == {A: MemoryShort(used=0, cause="node")}


def files_of_memory(node, pod):
    """Return the files of a pod's memory that the agent has open."""
    return [path for path in node.agent._hierarchy._kept._pods.get(str(pod), {}) if "/memory" in path]


def test_no_file_is_read_of_a_pod_that_is_not_named_for_it(node):
    pod, other = node.add(), node.add(B)
    node.orders[B] = UNALIGNED
    node.look()
    for n in range(4):
        node.tree.page(other, faults=90 * n, at_limit=n)
        found = pages(node, pod, 1, begin=1000 + 90 * n)
    assert found == [{A: SHORT}]
    assert files_of_memory(node, pod)
    assert not files_of_memory(node, other)


@pytest.mark.parametrize("order", [UNALIGNED, HoldOrder(), None], ids=lambda one: one and one.kind)
def test_another_order_and_a_release_end_it(node, order):
    pod = node.add()
    node.look()
    assert pages(node, pod, 3)[-1] == {A: SHORT}
    node.orders = {A: order} if order else {}
    pages(node, pod, 1, begin=2000)
    assert pages(node, pod, 4, begin=3000) == [{}] * 4
    node.orders = {A: WATCH}
    node.look()
    assert pages(node, pod, 4, begin=4000)[-1] == {A: SHORT}


def test_a_node_that_is_short_counts_for_each_aligned_pod(node):
    node.add(limit=None)
    node.add(B)
    node.orders[B] = UNALIGNED
    node.look()
    node.available(51)  # 5 % of 1 GiB are 51.2 MiB
    assert [node.look() for _ in range(4)] == [{}, {}, {}, {A: MemoryShort(used=47 * MIB, cause="node")}]
    node.orders[B] = WATCH
    node.look()
    assert node.look().keys() == {A, B}
    node.available(52)
    assert node.look() == {}


def test_the_container_that_is_closest_to_its_limit_is_named(node):
    pod = node.add(used=60, limit=2048)
    first, second = node.containers(pod)
    node.tree.hold(first, held=10 * MIB)
    node.tree.limit_memory(first, None)
    node.tree.hold(second, held=31 * MIB)
    node.tree.limit_memory(second, 32 * MIB)
    node.look()
    assert pages(node, pod, 3)[-1] == {A: MemoryShort(used=31 * MIB, limit=32 * MIB, cause="pod")}


@pytest.mark.parametrize("tree", [("v1", "cgroupfs"), ("v1", "systemd")], indirect=True)
def test_on_v1_a_container_at_its_own_limit_counts(node):
    """v2 adds it to the pod's."""
    pod = node.add()
    container = node.containers(pod)[1]
    node.look()
    for n in range(3):
        node.tree.page(pod, faults=60 * n, at_limit=7)
        node.tree.page(container, faults=60 * n, at_limit=n)
        found = node.look()
    assert found == {A: SHORT}
    node.tree.remove(container)
    node.tree.page(pod, faults=240, at_limit=8)
    assert node.look() == {}, "the sum fell"


@pytest.mark.parametrize("tree", [("v2", "cgroupfs"), ("v2", "systemd")], indirect=True)
def test_where_the_kernel_has_psi_it_alone_counts(node):
    """v1 has none for cgroups."""
    pod = node.add()
    node.tree.wait_for_memory(pod, recent=0.0, total=3.0)
    node.look()
    assert pages(node, pod, 5) == [{}] * 5, "nothing waits"
    node.tree.wait_for_memory(pod, recent=5.0, total=3.5)
    assert node.look() == {A: SHORT}
    assert [bool(node.look()) for _ in range(6)] == [True] * 3 + [False] * 3, "the mean alone remembers"
    node.tree.wait_for_memory(pod, recent=4.9, total=9.5)
    assert node.look() == {}
