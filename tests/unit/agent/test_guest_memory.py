"""Guests' memory: what hosts leave, whatever is written by others, refused or vanishes, and whichever program is gone.

The agent is the real one, the node is modelled: it has 16 GiB, and guests hold what they hold. A mark is written in the
look that asks for it; the story of a write that lasts has the real thread.
"""

import os
import threading

import pytest

from punctual.linger.memory_mark import HOLD, MARGIN, PATIENCE, RISE
from punctual.wire import ApplicationOrder, GuestOrder, NodeReport, Report, SetPoint, SetPoints
from punctual_agent import memory
from punctual_agent.cgroup import CgroupError
from punctual_agent.guest_memory import ROOM, UNIT
from punctual_agent.memory import Marks, NodeMemory, memory_of, node_memory
from punctual_agent.state import State
from punctual_agent.watchdog import Watchdog

GIB = 1 << 30
TOTAL = 16 * GIB
ALL = (1.0 - MARGIN) * TOTAL


class Node:
    """A node with an agent, and an operator that answers each second."""

    def __init__(self, tree, folder):
        self.tree, self.folder = tree, folder
        self.guests, self.weights, self.others, self.held = {}, {}, [], {}
        self.hosts = 2 * GIB
        self.now = 1000.0
        self.agent = self.report = None
        self.refused = {}
        """Errors of writes of marks, by pod."""
        self.written = []
        """Pods whose marks were written."""

    def add(self, name, *, weight=100, held=0, files=0):
        pod = self.tree.pod(name * 8, qos="besteffort", containers=1)
        self.guests[name], self.weights[name] = pod, weight
        self.hold(name, held, files)

    def hold(self, name, held, files=0):
        self.held[name] = held
        self.tree.hold(self.guests[name], held=held, active=files)

    def end(self, name):
        del self.held[name]
        self.tree.remove(self.guests.pop(name))

    def start(self):
        """Start the agent, or kill it and start another one."""
        self.kill()
        self.folder.mkdir(exist_ok=True)
        self.agent = self.tree.agent(State(self.folder), self.now)

    def kill(self):
        if self.agent is not None:
            self.agent._lock.release()

    def run(self, seconds, *, operator=True):
        for _ in range(round(seconds)):
            self.now += 1.0
            available = TOTAL - self.hosts - sum(self.held.values())
            (self.folder / "meminfo").write_text(
                f"MemTotal:  {TOTAL >> 10} kB\nMemFree:  7 kB\nMemAvailable:   {available >> 10} kB\n"
            )
            self.report = self.agent.tick(self.now)
            if operator:
                assert self.agent.tell(SetPoints(epoch=1, pods=self.points()), self.now)

    def points(self):
        points = []
        for name in self.guests:
            weight = self.weights[name]
            guest = GuestOrder(weight=weight or 100, paused=weight == 0)
            points.append(SetPoint(uid=name * 8, cap=0.01, rest_cap=0.01, mode=guest))
        return points + self.others

    def mark(self, name):
        return self.tree.mark(self.guests[name])

    @property
    def marks(self):
        return {name: self.mark(name) for name in self.guests}

    def counted(self, name, **labels):
        return self.agent._metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def node(tree, tmp_path, monkeypatch):
    made = Node(tree, tmp_path / "state")
    made.folder.mkdir()

    def ask(self, pod, mark):
        error = made.refused.get(pod)
        if error is None and os.path.exists(self._path(pod)):  # noqa: PTH110  as the module's paths
            memory.write_file(self._path(pod), str(mark))
            made.written.append(pod)
        self._done.put((pod, mark, error))

    monkeypatch.setattr(Marks, "ask", ask)
    monkeypatch.setattr(memory, "MEMINFO", str(made.folder / "meminfo"))
    made.start()
    yield made
    made.kill()


def kind(node):
    return "high" if node.tree.version == "v2" else "soft"


def near(size):
    return pytest.approx(size, abs=UNIT)


def test_story_of_guests_that_fill_memory_and_leave_when_hosts_need_it(node):
    node.add("a", held=GIB)
    node.add("b", weight=300, held=GIB)
    node.run(1)
    assert node.marks == {"a": None, "b": None}, "no order has come"
    node.run(1)
    left = ALL - 2 * GIB
    assert (node.agent.capabilities.guest_memory, node.report.host.guest_excess) == (kind(node), 0)
    rest = left - 2 * (GIB + ROOM)
    assert node.marks == {"a": near(GIB + ROOM + rest / 4), "b": near(GIB + ROOM + 3 * rest / 4)}
    assert node.counted("punctual_guest_memory_mark_bytes") == near(left)
    node.hold("a", 2 * GIB, files=GIB)
    node.hosts = 8 * GIB
    node.run(1)
    left = ALL - 8 * GIB
    assert sum(node.marks.values()) == pytest.approx(left, abs=2 * UNIT), "at once"
    node.hosts = 12 * GIB + GIB // 2
    node.run(PATIENCE - 1)
    assert node.marks == {"a": 2 * GIB + ROOM, "b": GIB + ROOM}, "none is pressed below what it holds"
    assert node.report.host.guest_excess == 0
    node.run(1)
    excess = node.report.host.guest_excess
    assert excess == pytest.approx(MARGIN * TOTAL - GIB // 2, abs=1)
    assert node.counted("punctual_guest_memory_excess_bytes") == excess
    assert {pod.uid: pod.memory_bytes for pod in node.report.pods} == {"a" * 8: 3 * GIB, "b" * 8: GIB}
    assert Report.model_validate_json(node.report.model_dump_json()) == node.report
    node.end("a")
    node.run(1)
    assert node.report.host.guest_excess == 0
    low = ALL - node.hosts
    assert node.mark("b") == near(low), "it has the other one's part"
    node.hosts = 2 * GIB
    node.run(HOLD - 1)
    assert node.mark("b") == near(low), "hosts may need again what is free"
    node.run(5)
    assert low < node.mark("b") <= low + 5 * RISE * TOTAL
    node.run(60)
    assert node.mark("b") == pytest.approx(ALL - node.hosts, rel=0.06)


def test_a_mark_is_written_only_if_it_moves(node):
    node.add("a", held=GIB)
    node.run(5)
    node.hold("a", GIB + 3 * UNIT)
    node.hosts += 50 * UNIT
    node.run(60)
    assert len(node.written) == 1


def test_hosts_that_grow_and_shrink_each_second_cause_one_write_a_minute(node):
    node.add("a", held=GIB)
    node.run(5)
    for n in range(60):
        node.hosts = (10 if n % 2 else 4) * GIB
        node.run(1)
    assert len(node.written) <= 3, "the first one, and as hosts use 4 and 10 GiB"


def test_a_paused_guest_has_what_it_holds(node):
    node.add("a", held=GIB, weight=0)
    node.add("b", held=GIB)
    node.run(2)
    assert node.marks == {"a": GIB + ROOM, "b": near(ALL - 3 * GIB - ROOM)}


def test_a_mark_that_another_program_changes_is_put_back_and_counted(node):
    node.add("a", held=GIB)
    node.run(5)
    mark, drift = node.mark("a"), node.counted("punctual_cgroup_drift_total")
    for n in range(1, 4):
        node.tree.unmark(node.guests["a"])
        node.run(1)
        assert node.mark("a") == mark
        assert node.counted("punctual_cgroup_drift_total") == drift + n
    node.run(1)
    assert node.report.pods[0].drift == 3


def test_only_guests_pods_get_a_mark_and_no_folder_above_or_below(node):
    node.add("a", held=GIB)
    host = node.tree.pod("h" * 8)
    node.others = [SetPoint(uid="h" * 8, cap=1.0, rest_cap=1.0)]
    node.tree.hold(host, held=GIB)
    node.run(5)
    assert node.mark("a") is not None
    folders = [path for path in node.tree.base.rglob("*") if path.is_dir() and path != node.guests["a"]]
    assert all(node.tree.mark(path) is None for path in folders if node.tree.mark_file(path).exists())


def test_a_pod_that_is_no_guest_any_more_has_no_mark(node):
    node.add("a", held=GIB)
    node.run(5)
    pod = node.guests["a"]
    node.weights["a"], node.guests = 100, {}
    node.others = [SetPoint(uid="a" * 8, cap=1.0, rest_cap=1.0)]
    node.run(1)
    assert node.tree.mark(pod) is None
    node.run(5)
    assert node.tree.mark(pod) is None
    assert node.report.host.guest_excess == 0


def test_a_mark_that_is_written_after_the_pod_has_ceased_to_be_a_guest_is_removed(node, monkeypatch):
    node.add("a", held=GIB)
    node.run(1)
    late = []
    monkeypatch.setattr(Marks, "ask", lambda self, pod, mark: late.append((self, pod, mark)))
    node.run(1)
    pod, node.guests = node.guests["a"], {}
    node.others = [SetPoint(uid="a" * 8, cap=1.0, rest_cap=1.0, mode=ApplicationOrder())]
    node.run(1)
    ((marks, folder, mark),) = late
    memory.write_file(marks._path(folder), str(mark))
    marks._done.put((folder, mark, None))
    node.run(1)
    assert node.tree.mark(pod) is None


def test_an_agent_that_starts_again_goes_on_from_the_marks_in_force(node):
    node.add("a", held=GIB)
    node.run(5)
    mark = node.mark("a")
    node.start()
    node.run(5, operator=False)
    assert (node.mark("a"), len(node.written)) == (mark, 1), "nothing has moved"
    node.hosts = 8 * GIB
    node.run(1, operator=False)
    assert node.mark("a") == near(ALL - 8 * GIB)
    node.start()
    node.guests, pod = {}, node.guests["a"]
    node.others = [SetPoint(uid="a" * 8, cap=1.0, rest_cap=1.0)]
    node.run(1)
    assert node.tree.mark(pod) is None, "it knows whose the mark is"


def test_while_the_agent_is_gone_marks_stay(node):
    node.add("a", held=GIB)
    node.run(5)
    mark = node.mark("a")
    node.kill()
    assert Watchdog(node.tree.hierarchy(), State(node.folder)).step(node.now + 60.0)
    assert node.mark("a") == mark
    node.agent.rest()
    assert node.mark("a") == mark


def test_an_agent_without_the_nodes_lock_writes_no_mark_and_tells_the_excess(node):
    node.add("a", held=13 * GIB)
    node.kill()
    other = node.tree.agent(State(node.folder / "other"), node.now)
    assert other._lock.take()
    node.start()
    node.hosts = 2 * GIB + GIB // 2
    node.run(2 + PATIENCE)
    assert node.mark("a") is None
    assert node.report.host.guest_excess > 0
    other._lock.release()


def test_a_mark_that_is_refused_is_counted_and_told_and_the_other_guests_have_theirs(node, caplog):
    node.add("a", held=GIB)
    node.add("b", held=GIB)
    node.refused[str(node.guests["a"])] = CgroupError("memory.high <- 5: Invalid argument", "refused")
    node.run(6)
    assert node.marks == {"a": None, "b": near(GIB + ROOM + (ALL - 2 * GIB - 2 * (GIB + ROOM)) / 2)}
    assert node.counted("punctual_cgroup_writes_total", result="refused") >= 3
    assert sum("Invalid argument" in str(getattr(one, "error", "")) for one in caplog.records) == 1, "said once"


def test_a_guest_that_vanishes_after_it_was_read_is_no_error(node, monkeypatch):
    node.add("a", held=GIB)
    node.add("b", held=GIB)
    node.run(3)
    real = node_memory

    def vanish(hierarchy):
        if "a" in node.guests:
            node.end("a")
        return real(hierarchy)

    monkeypatch.setattr("punctual_agent.guest_memory.node_memory", vanish)
    node.hosts = 8 * GIB
    node.run(3)
    assert node.mark("b") == near(ALL - 8 * GIB)


def test_where_the_kernel_has_no_marks_none_is_written_and_guests_still_leave(node):
    for path in node.tree.root.rglob(node.tree.mark_file(node.tree.base).name):
        path.unlink()
    node.add("a", held=13 * GIB)
    node.tree.mark_file(node.guests["a"]).unlink()
    node.hosts = 2 * GIB + GIB // 2
    node.run(2 + PATIENCE)
    assert node.agent.capabilities.guest_memory is None
    assert node.report.host.guest_excess > 0


@pytest.mark.parametrize("text", [None, "", "MemTotal: 5 kB", "MemAvailable: 5 kB\nMemTotal: many kB"])
def test_where_the_kernel_does_not_tell_the_nodes_memory_nothing_is_done(node, monkeypatch, text):
    path = node.folder / "odd"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(memory, "MEMINFO", str(path))
    node.add("a", held=GIB)
    node.run(5)
    assert node.mark("a") is None
    assert node.report.host.guest_excess == 0
    assert node.report.pods[0].memory_bytes == GIB


@pytest.mark.parametrize(
    ("limit", "held", "found"),
    [
        (None, 0, (TOTAL, 4 * GIB)),
        ("max", 0, (TOTAL, 4 * GIB)),
        (f"{(1 << 63) - 4096}", 0, (TOTAL, 4 * GIB)),
        (f"{8 * GIB}", 5 * GIB, (8 * GIB, 3 * GIB)),
        (f"{8 * GIB}", GIB, (8 * GIB, 4 * GIB)),
        (f"{8 * GIB}", 9 * GIB, (8 * GIB, 0)),
    ],
)
def test_a_node_has_the_machines_memory_or_the_limit_of_its_container(node, limit, held, found):
    v2 = node.tree.version == "v2"
    root = node.tree.root if v2 else node.tree.root / "memory"
    if limit is not None:
        (root / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(limit)
    node.tree.hold(node.tree.cpu, held=held, active=GIB, inactive=GIB)
    (node.folder / "meminfo").write_text(f"MemTotal: {TOTAL >> 10} kB\nMemAvailable: {4 << 20} kB\n")
    assert node_memory(node.tree.hierarchy()) == NodeMemory(*found)


def test_memory_is_told_with_and_without_cache_of_files(node):
    node.add("a")
    node.tree.hold(node.guests["a"], held=3, active=20, inactive=100)
    assert memory_of(node.tree.hierarchy(), str(node.guests["a"])) == (123, 23, 3)


def test_a_write_that_lasts_does_not_stop_the_agent(tree, tmp_path):
    """The kernel takes memory back before it returns. A pipe without a reader lets a write last as long."""
    pod = tree.pod("a" * 8)
    file = tree.mark_file(pod)
    file.unlink()
    os.mkfifo(file)
    marks = Marks(tree.hierarchy())
    assert marks.kind is not None
    marks.ask(str(pod), 5 * UNIT)
    assert marks.done() == []
    with file.open() as reader:
        assert reader.read() == str(5 * UNIT)
    while not (done := marks.done()):
        threading.Event().wait(0.01)
    assert done == [(str(pod), 5 * UNIT, None)]


def test_a_write_of_a_mark_that_fails_is_told(tree):
    marks = Marks(tree.hierarchy())
    assert marks.kind is not None
    marks.ask(str(tree.pod_folder("a" * 8)), UNIT)
    while not (done := marks.done()):
        threading.Event().wait(0.01)
    assert [error.kind for _, _, error in done] == ["vanished"]


def test_an_agent_that_knows_no_marks_says_none():
    assert NodeReport().guest_excess == 0
