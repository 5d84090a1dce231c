"""Guests on a node: they yield within a second, whatever lies, vanishes or is rewritten, and whichever program is gone.

The agent is the real one. The node is modelled: cgroup files without a kernel, four CPUs, hosts that need some of them,
and guests that take what their caps allow. Where both want more than there is, hosts get four fifths.
"""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.linger.episode import QUIET
from punctual.linger.guest_cap import HOLD, MARGIN
from punctual.wire import ApplicationOrder, GuestOrder, HoldOrder, NodeReport, Report, SetPoint, SetPoints
from punctual_agent import disk
from punctual_agent.agent import Agent
from punctual_agent.cgroup import CgroupError, Hierarchy, NodeUse
from punctual_agent.guests import SHORTEST, GuestsAndHosts, Seen
from punctual_agent.modes.guest import GuestMode
from punctual_agent.modes.hold import HoldMode
from punctual_agent.state import Saved, State
from punctual_agent.watchdog import Watchdog

CORES = 4.0
FLOOR = 0.01
ALL = CORES * (1.0 - MARGIN)


@dataclass
class Work:
    """A guest's program."""

    uid: str
    folder: object
    weight: int
    most: float = CORES
    """CPU that it can use."""
    cpu: float = 0.0
    begins: float = 0.0
    """The time at which its program begins."""
    paused: bool = False


@dataclass
class Node:
    """A node with an agent, and an operator that answers each second."""

    tree: object
    folder: object
    guests: dict[str, Work] = field(default_factory=dict)
    others: list[SetPoint] = field(default_factory=list)
    """Set points of pods that are no guests."""
    need: float = 0.0
    """CPU that hosts need now."""
    hosts: float = 0.0
    """CPU seconds that they got in the last second."""
    now: float = 1000.0
    cpu: float = 100.0
    agent: Agent = None
    report: Report = None

    def add(self, name, *, weight=100, **more):
        """A guest's pod is made; its program begins half a second later, before its first set point has come."""
        uid = name * 8
        pod = self.tree.pod(uid, qos="besteffort", containers=1)
        self.tree.volume(uid)
        self.tree.use(pod, 0.0)
        one = self.guests[name] = Work(uid, pod, weight, begins=self.now + 0.5, **more)
        return one

    def end(self, name):
        self.tree.remove(self.guests.pop(name).folder)

    def start(self):
        """Start the agent, or kill it and start another one."""
        self.kill()
        self.folder.mkdir(exist_ok=True)
        self.tree.use_node(self.cpu)
        self.agent = self.tree.agent(State(self.folder), self.now)

    def kill(self):
        if self.agent is not None:
            self.agent._lock.release()

    def cap(self, name):
        """What the cgroup files allow a guest, cores: no more than there are."""
        pod = self.guests[name].folder
        folders = (pod, *(path for path in pod.iterdir() if path.is_dir()))
        return min(CORES, *(self.tree.cap(folder).share for folder in folders))

    @property
    def caps(self):
        return {name: self.cap(name) for name in self.guests}

    @property
    def own(self):
        """What is reported of hosts."""
        return self.report.host.hosts

    def priority(self, name):
        return self.tree.priority(self.guests[name].folder)

    def run(self, seconds, *, operator=True):
        for _ in range(round(seconds)):
            self.second(operator=operator)

    def second(self, *, operator=True, agent=True):
        """Programs run for a second, with a glance of the agent in it. Then it reports and hears the operator."""
        first = self._half()
        if agent:
            self.agent.glance(self.now)
        self.hosts = first + self._half()
        if agent:
            self.report = self.agent.tick(self.now)
            if operator:
                assert self.agent.tell(SetPoints(epoch=1, pods=[*self.points(), *self.others]), self.now)

    def _half(self):
        """Programs run for half a second. Returns what hosts used, CPU seconds."""
        wishes = {n: min(one.most, self.cap(n)) for n, one in self.guests.items() if one.begins <= self.now}
        wished = sum(wishes.values())
        hosts = min(self.need, max(CORES - wished, 0.8 * CORES))
        part = min(1.0, (CORES - hosts) / wished) if wished else 0.0
        self.now += 0.5
        self.cpu += 0.5 * (hosts + part * wished)
        for name, wish in wishes.items():
            self.guests[name].cpu += 0.5 * part * wish
            self.tree.use(self.guests[name].folder, self.guests[name].cpu)
        self.tree.use_node(self.cpu)
        return 0.5 * hosts

    def points(self):
        return [
            SetPoint(uid=one.uid, cap=FLOOR, rest_cap=FLOOR, mode=GuestOrder(weight=one.weight, paused=one.paused))
            for one in self.guests.values()
        ]

    def counted(self, name, **labels):
        return self.agent._metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def node(tree, tmp_path):
    made = Node(tree, tmp_path / "state")
    made.start()
    yield made
    made.kill()


def container(node, name):
    return next(path for path in node.guests[name].folder.iterdir() if path.is_dir())


def test_story_of_guests_that_fill_a_node_step_aside_and_come_back(node):
    node.run(20)
    node.add("a")
    node.add("b")
    node.second()
    assert node.caps == {"a": FLOOR, "b": FLOOR}, "the order has come: the floor, until the next second"
    node.second()
    assert node.caps == pytest.approx({"a": ALL / 2, "b": ALL / 2}), "the node was quiet: all that hosts leave"
    node.run(5)
    assert node.own.guests == pytest.approx(ALL)
    node.need = CORES
    node.second()
    in_halves = (0.8 * CORES + CORES - 2 * FLOOR) / 2
    assert node.hosts == pytest.approx(in_halves), "priorities alone protect hosts for half a second"
    assert node.caps == {"a": FLOOR, "b": FLOOR}
    node.second()
    assert node.hosts == CORES - 2 * FLOOR
    node.run(9)
    assert node.caps == {"a": FLOOR, "b": FLOOR}
    node.need = 1.0
    node.run(HOLD - 1)
    assert node.caps == {"a": FLOOR, "b": FLOOR}, "quiet for a moment: it may be a pause"
    node.run(20)
    assert sum(node.caps.values()) == pytest.approx(ALL - 1.0, abs=0.1)
    assert node.hosts == 1.0


@pytest.mark.parametrize("early", [0.3, 0.1, 0.01])
def test_a_burst_that_begins_shortly_before_a_look_ends_guests_within_a_tick_too(node, early):
    """The look shows too little of it; the next one, half a second later, shows enough."""
    node.run(20)
    node.add("a")
    node.run(5)
    guest, rest = node.guests["a"], 0.5 - early
    for guests, hosts in ((rest * ALL, 0.0), (early * 0.2 * CORES, early * 0.8 * CORES)):
        guest.cpu += guests
        node.cpu += guests + hosts
    node.tree.use(guest.folder, guest.cpu)
    node.tree.use_node(node.cpu)
    node.now += 0.5
    node.agent.glance(node.now)
    node.need = CORES
    node._half()
    node.agent.tick(node.now)
    assert node.cap("a") == FLOOR


def test_a_look_right_after_a_late_one_says_nothing(node):
    node.run(20)
    node.add("a")
    node.run(5)
    node.tree.use_node(node.cpu + 0.01 * CORES)  # all CPUs, but for a hundredth of a second only
    node.agent.glance(node.now + 0.01)
    assert node.cap("a") == pytest.approx(ALL, rel=1e-4)
    node.run(5)
    assert node.cap("a") == pytest.approx(ALL, rel=1e-4)


def test_without_guests_a_glance_reads_nothing(node, monkeypatch):
    node.run(3)
    monkeypatch.setattr(Hierarchy, "node", lambda _: pytest.fail("it has read"))
    node.agent.glance(node.now + 0.5)


def test_a_node_that_is_busy_each_other_second_has_one_change_of_caps_in_a_minute(node):
    node.run(20)
    node.add("a")
    node.run(5)
    before = node.counted("punctual_cgroup_writes_total", result="written")
    for n in range(60):
        node.need = CORES if n % 2 == 0 else 0.0
        node.second()
        assert node.cap("a") == FLOOR
    assert node.counted("punctual_cgroup_writes_total", result="written") <= before + 2, "one cap, at most two folders"


def test_guests_share_by_weight_and_what_one_does_not_use_is_the_others(node):
    node.run(20)
    node.add("a", weight=300)
    node.add("b")
    node.run(3)
    assert node.caps == pytest.approx({"a": 0.75 * ALL, "b": 0.25 * ALL}, rel=1e-2)
    node.guests["a"].most = 0.5  # it waits for a disk
    node.run(3)
    assert node.cap("a") == pytest.approx(0.5 * 1.25, rel=0.01)
    assert sum(node.caps.values()) == pytest.approx(ALL, rel=1e-4)
    node.guests["a"].most = CORES
    node.run(2)
    assert node.cap("a") == pytest.approx(0.75 * ALL, rel=1e-2), "within two seconds it has its part again"


def test_a_paused_guest_has_its_floor_until_it_goes_on_and_the_others_have_its_part(node):
    node.run(20)
    node.add("a")
    node.add("b", weight=300)
    node.run(5)
    node.guests["b"].paused = True
    node.run(2)
    assert node.caps == {"a": pytest.approx(ALL - FLOOR, rel=1e-4), "b": FLOOR}
    node.guests["a"].most = 0.5
    node.run(5)
    assert node.cap("b") == FLOOR, "also while others leave something"
    node.guests["a"].paused = True
    node.run(2)
    assert node.caps == {"a": FLOOR, "b": FLOOR}, "nobody has what is left"
    node.guests["b"].paused = False
    node.run(3)
    assert node.caps == pytest.approx({"a": FLOOR, "b": ALL - FLOOR}, rel=1e-4)


def test_a_paused_guest_stays_paused_after_a_restart_of_the_agent_without_an_operator(node):
    node.run(20)
    node.add("a", paused=True)
    node.run(5)
    node.start()
    node.run(20, operator=False)
    assert node.cap("a") == FLOOR
    node.guests["a"].paused = False
    node.run(10)
    assert node.cap("a") == pytest.approx(ALL, rel=1e-4)


def test_a_guests_memory_is_reported_without_files_that_were_not_used_lately(node):
    guest = node.add("a")
    chunk = node.tree.pod("c" * 8, containers=1)
    node.others = [SetPoint(uid="c" * 8, cap=1.0, rest_cap=1.0)]
    for folder in (guest.folder, chunk):
        node.tree.hold(folder, held=3 << 20, active=2 << 20, inactive=1 << 20)
    node.run(3)
    assert {pod.uid: pod.memory_bytes for pod in node.report.pods} == {guest.uid: 5 << 20, "c" * 8: 0}


@pytest.mark.parametrize("missing", ["memory.stat", "memory.*u*", "memory.*"])
def test_where_the_kernel_does_not_count_memory_none_is_reported_and_guests_go_on(node, missing):
    node.run(20)
    guest = node.add("a")
    node.tree.hold(guest.folder, held=1 << 20)
    for file in node.tree.memory(guest.folder).glob(missing):
        file.unlink()
    node.run(3)
    assert node.report.pods[0].memory_bytes == 0
    assert node.cap("a") == pytest.approx(ALL, rel=1e-4)


def test_a_guest_that_comes_and_one_that_ends_are_no_work_of_hosts(node):
    """Both have used CPU that no second account shows; were it the hosts', all guests would yield for seconds."""
    node.run(20)
    node.add("a")
    node.run(5)
    late = node.add("b")  # until its order comes, no cap holds it
    late.most = 0.1
    node.second()
    assert node.own.used == pytest.approx(0.0, abs=1e-6)
    late.most = CORES
    node.run(5)
    assert node.cap("a") == pytest.approx(ALL / 2, rel=1e-4)
    node.cpu += 0.25 * ALL  # the last half second of the one that ends
    node.end("b")
    node.second()
    assert node.own.used == pytest.approx(0.0, abs=1e-6)
    assert node.cap("a") == pytest.approx(ALL, rel=1e-4)


def test_promised_chunks_are_work_that_guests_yield_to(node):
    chunk = node.tree.pod("c" * 8, containers=1)
    node.others = [SetPoint(uid="c" * 8, cap=1.0, rest_cap=1.0)]
    node.tree.use(chunk, 0.0)
    node.add("a")
    node.need = 1.0  # the chunk's
    for n in range(20):
        node.tree.use(chunk, float(n))
        node.second()
    assert node.own.used == pytest.approx(1.0)
    assert node.cap("a") == pytest.approx(ALL - 1.0, abs=0.1)


def test_guests_get_the_lowest_priority_and_no_folder_above_theirs_is_written(node):
    above = [path for path in (node.tree.base, *node.tree.base.iterdir()) if path.is_dir()]
    before = {path: (path / "cpu.idle").read_text() for path in above if (path / "cpu.idle").exists()}
    node.add("a")
    node.run(2)
    assert node.priority("a") == (1, 100), "in the idle class, weights cannot be written"
    assert node.report.host.guest_priority == "idle"
    assert {path: (path / "cpu.idle").read_text() for path in before} == before
    assert (container(node, "a") / "cpu.idle").read_text().strip() == "0"


@pytest.mark.parametrize(("version", "least"), [("v1", 2), ("v2", 1)])
def test_without_the_idle_class_guests_get_the_least_weight(make_tree, tmp_path, version, least):
    node = Node(make_tree(version, idle=False), tmp_path / "state")
    node.start()
    node.add("a")
    node.run(2)
    assert node.priority("a") == (None, least)
    assert node.report.host.guest_priority == "weight"
    node.kill()


LEAST_WEIGHTS = {"v1": {"blkio.bfq.weight": "1"}, "v2": {"io.weight": "default 1", "io.bfq.weight": "default 1"}}


def test_guests_get_the_lowest_disk_priority_and_hosts_keep_theirs(node):
    host = node.tree.pod("h" * 8)
    node.others = [SetPoint(uid="h" * 8, cap=1.0, rest_cap=1.0)]
    node.add("a")
    pod = node.guests["a"].folder
    others = [node.tree.base, *(path for path in host.parent.rglob("*") if path.is_dir() and pod not in path.parents)]
    before = {path: node.tree.disk_priority(path) for path in {*others} - {pod} if (path / "cpu.stat").exists()}
    node.run(3)
    assert set(node.agent.capabilities.guest_disk) == {"weight", "class"}
    weights = LEAST_WEIGHTS[node.tree.version]
    assert node.tree.disk_priority(pod).items() >= weights.items()
    assert "no-change" in node.tree.disk_priority(pod).values(), "the class is not inherited"
    inner = node.tree.disk_priority(container(node, "a"))
    assert inner.keys() - {name for name, text in inner.items() if text == "idle"} == weights.keys()
    assert len(before) > 2
    assert {path: node.tree.disk_priority(path) for path in before} == before


def test_a_disk_priority_that_another_program_changes_is_put_back_and_counted_and_a_new_container_is_none(node):
    node.add("a")
    node.run(3)
    pod, drift = node.guests["a"].folder, node.counted("punctual_cgroup_drift_total")
    for file, text in node.tree.disk_files(pod).items():
        file.write_text(f"{text}\n")
    node.run(1)
    weights = LEAST_WEIGHTS[node.tree.version]
    assert node.tree.disk_priority(pod).items() >= weights.items()
    assert node.counted("punctual_cgroup_drift_total") == drift + len(weights)
    late = node.tree.folder(pod / "late")
    node.run(1)
    assert "idle" in node.tree.disk_priority(late).values()
    assert node.counted("punctual_cgroup_drift_total") == drift + len(weights)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_without_disk_priorities_nothing_is_written_and_no_error_is_told(make_tree, tmp_path, version):
    node = Node(make_tree(version, disk=False), tmp_path / "state")
    node.start()
    node.add("a")
    node.run(3)
    assert node.agent.capabilities.guest_disk == ()
    assert not any(node.counted("punctual_cgroup_writes_total", result=kind) for kind in ("vanished", "failed"))
    assert not any(file.exists() for file in node.tree.disk_files(node.guests["a"].folder))
    node.kill()


def test_a_disk_priority_that_is_refused_or_gone_is_told_and_the_others_are_written(node, monkeypatch, caplog):
    real = disk.write_file

    def write(path, text):
        if path.endswith("weight"):
            raise CgroupError(f"{path} <- {text}: Invalid argument", "refused")
        real(path, text)

    monkeypatch.setattr(disk, "write_file", write)
    node.run(20)
    node.add("a")
    for file in node.tree.disk_files(container(node, "a")):
        file.unlink()
    node.run(3)
    late = node.tree.folder(node.guests["a"].folder / "late")
    node.run(1)
    assert "idle" in node.tree.disk_priority(late).values()
    assert node.cap("a") == pytest.approx(ALL, rel=1e-4)
    assert node.counted("punctual_cgroup_writes_total", result="refused") > 0
    assert not node.counted("punctual_cgroup_writes_total", result="vanished")
    assert sum("weight <- " in str(getattr(one, "error", "")) for one in caplog.records) == 1, "said once"


def capabilities(node):
    every = {"cpu": ("idle", "weight"), "memory": ("high", "soft"), "disk": ("weight", "class")}
    values = {
        (resource, kind): node.counted("punctual_agent_guest_capability", resource=resource, kind=kind)
        for resource, kinds in every.items()
        for kind in kinds
    }
    assert set(values.values()) <= {0.0, 1.0}, "a query finds also what is missing"
    return {key for key, value in values.items() if value}


@pytest.mark.parametrize(("version", "memory"), [("v1", "soft"), ("v2", "high")])
@pytest.mark.parametrize("full", [True, False])
def test_what_the_kernel_has_to_hold_guests_is_published(make_tree, tmp_path, version, memory, full):
    node = Node(make_tree(version, idle=full, disk=full), tmp_path / "state")
    node.start()
    node.second()
    disk = {("disk", "weight"), ("disk", "class")} if full else set()
    assert capabilities(node) == {("cpu", "idle" if full else "weight"), ("memory", memory), *disk}
    assert capabilities(node) == {
        ("cpu", node.report.host.guest_priority),
        ("memory", node.agent.capabilities.guest_memory),
        *(("disk", kind) for kind in node.agent.capabilities.guest_disk),
    }
    node.kill()


def test_before_the_kubelet_has_made_a_folder_nothing_is_known_of_capabilities(make_tree, tmp_path):
    node = Node(make_tree("v2", "cgroupfs"), tmp_path / "state")
    node.tree.remove(node.tree.base)
    node.start()
    node.second()
    assert node.report.host.guest_priority is None
    assert capabilities(node) == set()
    node.kill()


def test_limits_and_priorities_that_other_programs_rewrite_are_put_back_at_the_next_tick_and_counted(node):
    node.run(20)
    node.add("a")
    node.run(5)
    before, drift = node.cap("a"), node.counted("punctual_cgroup_drift_total")
    for n in range(1, 4):
        node.tree.folder(container(node, "a"))  # as a daemon-reload leaves it
        (node.guests["a"].folder / "cpu.idle").write_text("0\n")
        node.second()
        assert node.cap("a") == before
        assert node.priority("a")[0] == 1
        assert node.counted("punctual_cgroup_drift_total") == drift + 2 * n
    assert node.report.pods[0].drift == 6


def test_a_cap_above_that_is_rewritten_during_a_burst_falls_to_the_floor_too(node):
    node.run(20)
    node.add("a")
    node.run(5)
    node.need = CORES
    node.second()
    node.tree.folder(container(node, "a"))
    node.second()
    assert node.cap("a") == FLOOR


def test_a_guest_that_vanishes_between_read_and_write_is_counted_and_the_others_go_on(node, monkeypatch):
    node.run(20)
    node.add("a")
    node.add("b")
    node.run(3)
    gone, real = node.guests["a"], Hierarchy.lower

    def lower(self, pod):
        if pod == str(gone.folder) and "a" in node.guests:
            node.end("a")
        return real(self, pod)

    monkeypatch.setattr(Hierarchy, "lower", lower)
    (gone.folder / "cpu.idle").write_text("0\n")
    node.second()
    assert "a" not in node.guests, "the story's point"
    assert node.counted("punctual_cgroup_writes_total", result="vanished") == 1
    node.run(3)
    assert node.cap("b") == pytest.approx(ALL, rel=1e-4)
    assert node.counted("punctual_agent_guests") == 1


def test_a_priority_that_is_refused_is_told_and_the_cap_is_kept(node, monkeypatch, caplog):
    def refuse(self, pod):
        raise CgroupError(f"{pod}/cpu.idle <- 1: Invalid argument", "refused")

    monkeypatch.setattr(Hierarchy, "lower", refuse)
    node.run(20)
    node.add("a")
    node.run(3)
    assert node.cap("a") == pytest.approx(ALL, rel=1e-4)
    assert node.counted("punctual_cgroup_writes_total", result="refused") > 0
    assert sum("cpu.idle" in str(getattr(one, "error", "")) for one in caplog.records) == 1, "said once"


def test_while_the_operator_is_away_guests_still_yield_each_second(node):
    node.run(20)
    node.add("a")
    node.run(5)
    node.run(100, operator=False)
    assert node.cap("a") == pytest.approx(ALL, rel=1e-4)
    node.need = CORES
    node.second(operator=False)
    assert node.cap("a") == FLOOR


def test_an_agent_that_is_killed_leaves_guests_to_the_watchdog_at_their_floor(node):
    node.run(20)
    node.add("a")
    node.run(5)
    node.kill()
    dog = Watchdog(node.tree.hierarchy(), State(node.folder))
    died = node.now
    while node.cap("a") > FLOOR:
        node.second(agent=False)
        dog.step(node.now)
    assert node.now - died <= 6.0
    node.tree.folder(container(node, "a"))
    dog.step(node.now)
    assert node.cap("a") == FLOOR, "and keeps them there"


def test_an_agent_that_starts_again_without_an_operator_knows_its_guests(node):
    node.run(20)
    node.add("a")
    node.run(5)
    node.need = CORES
    node.start()
    node.second(operator=False)
    assert node.cap("a") == FLOOR
    node.need = 1.0
    node.run(20, operator=False)
    assert node.cap("a") == pytest.approx(ALL - 1.0, abs=0.1)


def test_an_agent_that_ends_in_order_leaves_guests_at_their_floor(node):
    node.run(20)
    node.add("a")
    node.run(5)
    node.agent.rest()
    assert node.cap("a") == FLOOR


def test_a_pod_that_is_no_guest_any_more_gets_its_cap(node):
    node.add("a")
    node.run(5)
    uid = node.guests["a"].uid
    node.agent.tell(SetPoints(epoch=1, pods=[SetPoint(uid=uid, cap=0.5, rest_cap=0.9)]), node.now)
    assert node.cap("a") == 0.5
    assert State(node.folder).load() == Saved(1, 5.0, {uid: HoldMode(0.9, 0.1)})


def test_a_pod_that_a_target_rate_holds_is_no_guest(node):
    node.add("a")
    node.run(5)
    uid = node.guests["a"].uid
    held = SetPoint(uid=uid, cap=0.5, rest_cap=0.5, mode=ApplicationOrder())
    node.agent.tell(SetPoints(epoch=1, pods=[held], applications_complete=True), node.now)
    assert State(node.folder).load().modes[uid].kind == "Application"


def test_the_report_says_what_hosts_and_guests_use_and_since_when_the_node_is_busy(node):
    node.need = 0.2
    node.run(10)
    assert (node.own.cores, node.own.used, node.own.busy) == (CORES, pytest.approx(0.2), False)
    assert (node.own.age, node.own.mean) == (9.0, pytest.approx(0.2))
    node.add("a")
    node.need = 2.0
    node.run(30)
    assert (node.own.busy, node.own.age, node.own.mean) == (True, 30.0, pytest.approx(2.0))
    assert node.own.guests == pytest.approx(ALL - 2.0, abs=0.1)
    (guest,) = node.report.pods
    assert (guest.cpu_seconds, guest.cap) == (pytest.approx(node.guests["a"].cpu), node.cap("a"))
    node.need = 0.2
    node.run(QUIET - 1)
    assert node.own.busy, "until it has been quiet for a minute"
    node.second()
    assert (node.own.busy, node.own.age) == (False, 1.0)
    assert node.counted("punctual_host_cpu_cores") == pytest.approx(0.2)
    assert node.counted("punctual_guest_cpu_cores") == pytest.approx(node.own.guests) != 0.0
    assert Report.model_validate_json(node.report.model_dump_json()) == node.report


def test_a_counter_that_lies_moves_no_cap_above_what_there_is(node):
    node.run(20)
    node.add("a")
    node.run(3)
    node.cpu -= 50.0  # a node in a container that was restarted
    node.second()
    assert node.own.used == 0.0
    assert node.cap("a") <= ALL
    node.guests["a"].cpu += 1e6
    node.second()
    assert node.own.guests <= CORES


@pytest.mark.parametrize("weight", [0, -1, 10_001, 1.5, "much"])
def test_a_weight_that_is_none_is_refused(weight):
    with pytest.raises(ValueError, match="weight"):
        SetPoint.model_validate({"uid": "a", "cap": 1.0, "rest_cap": 1.0, "guest": {"weight": weight}})


def test_an_agent_and_an_operator_that_know_no_guests_say_none():
    point = SetPoint.model_validate({"uid": "a", "cap": 1.0, "rest_cap": 1.0})
    assert point.mode == HoldOrder()
    assert (NodeReport().hosts, NodeReport().guest_priority) == (None, None)


def test_guests_come_back_as_they_were_saved(tmp_path):
    state, modes = State(tmp_path), {"a": GuestMode(FLOOR, 0.1, 7), "b": HoldMode(FLOOR, 0.1)}
    state.save(Saved(1, 5.0, modes))
    assert state.load() == Saved(1, 5.0, modes)


@pytest.mark.parametrize("broken", [{"floor": None}, {"weight": "much"}, {"weight": None}, {"kind": "Ghost"}])
def test_guests_that_make_no_sense_are_none(tmp_path, broken):
    guest = {"kind": "Guest", "floor": FLOOR, "period": 0.1, "weight": 7}
    for mode, found in ((guest, 1), (guest | broken, 0)):
        (tmp_path / "state.json").write_text(json.dumps({"epoch": 3, "lease": 5, "modes": {"a": mode}}))
        assert len(State(tmp_path).load().modes) == found


@pytest.mark.parametrize(
    ("version", "files", "cores"),
    [
        ("v2", {"cpuset.cpus.effective": "0-3,8"}, 5.0),
        ("v2", {"cpuset.cpus.effective": "0-3,8", "cpu.max": "75000 100000"}, 0.75),
        ("v2", {"cpuset.cpus.effective": "0-3,8", "cpu.max": "max 100000"}, 5.0),
        ("v1", {"cpuset/cpuset.effective_cpus": "2"}, 1.0),
        (
            "v1",
            {"cpuset/cpuset.effective_cpus": "0-1", "cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "5"},
            2.0,
        ),
        ("v1", {"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000"}, 1.5),
    ],
)
def test_a_node_has_its_cpus_or_the_quota_of_its_container(make_tree, version, files, cores):
    tree = make_tree(version)
    for name, text in files.items():
        (tree.root / name).write_text(text + "\n")
    assert tree.hierarchy().node().cores == cores


@pytest.mark.parametrize("text", [None, "", "all"])
def test_without_a_list_of_cpus_it_has_those_of_the_machine(make_tree, monkeypatch, text):
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    tree = make_tree("v2")
    (tree.root / "cpuset.cpus.effective").unlink()
    if text is not None:
        (tree.root / "cpuset.cpus.effective").write_text(text)
    assert tree.hierarchy().node().cores == 7.0


def test_an_agent_that_has_just_started_knows_no_use_and_has_guests_at_their_floor(node):
    node.add("a")
    node.second()
    assert node.report.host.hosts is None
    assert node.cap("a") == FLOOR


POD = st.tuples(st.floats(0.0, 1e6), st.booleans(), st.none() | st.integers(0, 10_000))
LOOKS = st.lists(
    st.tuples(
        st.floats(0.01, 40.0),
        st.floats(0.0, 1e6),
        st.sampled_from([0.001, 0.75, 4.0, 128.0]),
        st.dictionaries(st.sampled_from("abcd"), POD),
    ),
    max_size=20,
)


@given(LOOKS)
@settings(max_examples=200, deadline=None)
def test_whatever_counters_say_and_pods_do_caps_fit_the_node_and_the_report_is_one(looks):
    guests, now = GuestsAndHosts(), 0.0
    for seconds, cpu, cores, pods in looks:
        now += seconds
        before = {uid: guests.cap(uid, FLOOR) for uid in pods}
        guests.look(now, NodeUse(cpu, None, None, cores), {uid: Seen(*pod, FLOOR) for uid, pod in pods.items()})
        caps = {uid: guests.cap(uid, FLOOR) for uid, (_, _, weight) in pods.items() if weight is not None}
        if seconds >= SHORTEST:
            assert all(cap >= FLOOR for cap in caps.values())
            assert sum(caps.values()) <= max(cores, len(caps) * FLOOR) + 1e-9
            assert all(caps[uid] == FLOOR for uid, (_, _, weight) in pods.items() if weight == 0)
        else:
            assert {uid: guests.cap(uid, FLOOR) for uid in pods} == before or now == seconds
        report = guests.report()
        if report is not None:
            assert 0.0 <= report.used <= report.cores
            assert 0.0 <= report.guests <= report.cores
            assert 0.0 <= report.mean <= report.cores
