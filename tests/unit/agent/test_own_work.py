"""The load of the node's own work, as the agent reports it while it holds an application. The node has four CPUs."""

import pytest

from punctual.wire import ApplicationOrder, GuestOrder, HoldOrder, SetPoint, SetPoints
from punctual_agent.state import State

HELD, GUEST, CHUNK = "a" * 8, "b" * 8, "c" * 8
LOCAL = ["d-1", "d-2", "d-3", "d-4"]
QOS = ["", "burstable", "besteffort", "burstable"]


class Node:
    """A node with one pod of each sort, and its agent. ``uses``: CPU of each pod and of all else, cores."""

    def __init__(self, tree, folder):
        self.tree, self.now, self.other = tree, 0.0, 0.0
        self.folders = {HELD: tree.pod(HELD, qos=""), GUEST: tree.pod(GUEST), CHUNK: tree.pod(CHUNK)}
        self.folders |= {uid: tree.pod(uid, qos=qos) for uid, qos in zip(LOCAL, QOS, strict=True)}
        self.used = dict.fromkeys(self.folders, 0.0)
        self.agent = tree.agent(State(folder))
        self.tell()

    def tell(self, *, hold=True):
        sorts = [(GUEST, GuestOrder(weight=1)), (CHUNK, HoldOrder())] + ([(HELD, ApplicationOrder())] if hold else [])
        points = [SetPoint(uid=uid, cap=2.0, rest_cap=2.0, mode=mode) for uid, mode in sorts]
        self.agent.tell(SetPoints(epoch=1, pods=points, applications_complete=True), self.now)

    def run(self, seconds, other=0.0, **uses):
        """Go on, and return the load that is reported at the end."""
        for _ in range(seconds):
            self.now += 1.0
            self.other += other
            for uid in self.used:
                self.used[uid] += uses.get(uid.partition("-")[0], 0.0)
            self.count()
            report = self.agent.tick(self.now)
        return report.host.load

    def count(self):
        for uid, folder in self.folders.items():
            self.tree.use(folder, self.used[uid])
        self.tree.use_node(self.other + sum(self.used.values()))


@pytest.fixture
def node(tree, tmp_path):
    (tmp_path / "state").mkdir()
    made = Node(tree, tmp_path / "state")
    yield made
    made.agent._lock.release()


def test_pods_with_and_without_a_set_point_and_all_else_are_own_work_but_guests_and_applications_are_not(node):
    uses = {HELD: 2.0, GUEST: 0.1}
    assert node.run(10, **uses) is None, "ten seconds are not over"
    assert node.run(1, **uses) == 0.0
    assert node.run(10, d=0.45, **uses) == pytest.approx(1.0), "four pods have nearly all that the application leaves"
    assert node.run(10, d=0.38, **{CHUNK: 0.38}, **uses) == pytest.approx(1.25)
    assert node.run(10, d=0.36, **{CHUNK: 0.36}, other=0.18, **uses) == pytest.approx(1.44, abs=0.01)
    assert node.run(10, d=0.2, **uses) == pytest.approx(0.42, abs=0.01), (
        "each runs for 0.4 s of a second, of half a CPU"
    )


def test_between_two_looks_the_last_load_is_told(node):
    node.run(11)
    assert [node.run(1, d=1.0) for _ in range(11)][8:] == [0.0, pytest.approx(1.0), pytest.approx(1.0)]


def test_pods_that_come_and_go_count_for_what_they_have_used(node, tree):
    node.run(11)
    node.used["new"], node.folders["new"] = 0.0, tree.pod("new", qos="besteffort")
    assert node.run(10, new=1.0) == pytest.approx(0.25)
    node.run(5, d=0.5)
    tree.remove(node.folders.pop("d-1"))
    assert node.run(5) == pytest.approx(0.25 * (1.0 + 0.014), abs=0.01), "half of the time for each of the four"


def test_it_is_measured_only_while_an_application_is_held(node):
    node.tell(hold=False)
    read = []
    node.agent._own.hierarchy.pods = lambda base: read.append(base) or []
    assert node.run(25, d=1.0) is None
    assert not read
    node.tell()
    assert node.run(1, d=1.0) is None
    assert len(read) == 1
    node.tell(hold=False)
    assert node.run(1) is None


def test_pods_of_another_node_of_the_machine_are_not_this_nodes_work(make_tree, tmp_path):
    """As in containers that see the cgroups of the whole machine."""
    (tmp_path / "state").mkdir()
    tree = make_tree("v1", "cgroupfs", below="docker/one/kubelet")
    beside = tree.folder(tree.cpu / "docker/two/kubelet/kubepods")
    theirs = tree.folder(beside / "pode-1")
    node = Node(tree, tmp_path / "state")
    node.run(11)
    for second in range(10):
        tree.use(beside, 3.5 + 2.0 * second)
        tree.use(theirs, 3.5 + 2.0 * second)
        node.other += 2.0
        load = node.run(1, d=0.1)
    assert load == pytest.approx(0.1, abs=0.01)
    node.agent._lock.release()
