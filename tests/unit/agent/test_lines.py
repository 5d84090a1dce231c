"""The agent keeps chunks on their lines while files lie, clocks are set, folders vanish, and others come and go.

The agent is the real one. The node is modelled: cgroup files without a kernel, programs that get what the files say.
"""

from dataclasses import dataclass, field

import pytest

from punctual.wire import LineOrder, ResponseModel, SetPoint, SetPoints
from punctual_agent.agent import Agent
from punctual_agent.cgroup import Hierarchy
from punctual_agent.state import State
from punctual_agent.steering import Steering


@dataclass
class Program:
    """A chunk's program: it does a unit in ``cost`` CPU seconds."""

    uid: str
    folder: object
    file: object
    units: int = 600
    cost: float = 0.875
    planned: float = 600.0
    speed: float = 1.0
    hangs: bool = False
    done: float = 0.0
    cpu: float = 0.0
    says: object = None
    """What it writes instead of what it has done."""
    ended: float | None = None
    model: ResponseModel | None = None
    """What the agent has learned of it, as the operator keeps it."""


@dataclass
class Node:
    """A node, an agent, and an operator that answers each second. The pool has a core there for each program."""

    tree: object
    folder: object
    programs: dict[str, Program] = field(default_factory=dict)
    now: float = 1000.0
    wall: float = 1_700_000_000.0
    agent: Agent = None
    reports: dict = field(default_factory=dict)

    def add(self, name, **more):
        uid = name * 8
        pod = self.tree.pod(uid, containers=1)
        one = self.programs[name] = Program(uid, pod, self.tree.volume(uid) / "progress", **more)
        one.planned += self.now
        return one

    def start(self):
        """Start the agent, or kill it and start another one."""
        if self.agent is not None:
            self.agent._lock.release()
        self.folder.mkdir(exist_ok=True)
        self.agent = self.tree.agent(State(self.folder), self.now, wall=lambda: self.wall)

    def cap(self, name):
        """What the cgroup files allow a program, cores."""
        pod = self.programs[name].folder
        return min(self.tree.cap(folder).share for folder in (pod, *(path for path in pod.iterdir() if path.is_dir())))

    @property
    def caps(self):
        return {name: self.cap(name) for name, one in self.programs.items() if one.ended is None}

    def run(self, seconds, *, operator=True):
        """Let seconds pass. Returns the caps of each of them."""
        return [self.second(operator=operator) for _ in range(round(seconds))]

    def second(self, *, operator=True):
        report = self.agent.tick(self.now)
        self.reports = {pod.uid: pod for pod in report.pods}
        if operator:
            points = [self._point(one) for one in self.programs.values() if one.ended is None]
            self.agent.tell(SetPoints(epoch=1, pods=points), self.now)
        caps = self.caps
        assert sum(caps.values()) <= 1.01 * len(self.programs)
        self.now += 1.0
        self.wall += 1.0
        for name, one in self.programs.items():
            if one.ended is None:
                self._work(one, caps[name])
        return caps

    def _work(self, one, cap):
        used = 0.0 if one.hangs else min(cap, 8.0)
        one.cpu += used
        one.done += used * one.speed / one.cost
        self.tree.use(one.folder, one.cpu)
        self.tree.write(one.file, str(int(min(one.done, one.units) if one.says is None else one.says)))
        if one.done >= one.units:
            one.ended = self.now
            self.tree.remove(one.folder)

    def _point(self, one):
        sample = 8.75
        seen = self.reports.get(one.uid)
        if seen is not None and seen.followed is not None:
            one.model = seen.followed.model
        follow = LineOrder(
            pool="main",
            pool_cores=len(self.programs),
            units=one.units,
            seconds_left=one.planned - self.now - 3 * sample,
            floor=0.05,
            sample=sample,
            model=one.model or ResponseModel(a=0.0, b=sample / one.cost),
        )
        return SetPoint(uid=one.uid, cap=1.0, rest_cap=1.0, units=one.units, mode=follow)

    def in_time(self, *names):
        """Whether programs have ended before their planned ends."""
        return all(
            self.programs[n].ended is not None and self.programs[n].ended <= self.programs[n].planned for n in names
        )


@pytest.fixture
def node(make_tree, tmp_path):
    made = Node(make_tree("v2", "cgroupfs"), tmp_path / "state")
    for name in "abcd":
        made.add(name)
    made.start()
    yield made
    made.agent._lock.release()


def counted(node, name, **labels):
    return node.agent._metrics.registry.get_sample_value(name, labels)


def test_a_chunk_whose_program_hangs_for_a_minute_is_in_time_and_so_are_the_others(node):
    node.run(100)
    node.programs["a"].hangs = True
    node.run(60)
    assert node.cap("a") >= 0.99, "it lost its processor while it did not use it"
    node.programs["a"].hangs = False
    node.run(430)
    assert node.in_time("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("says", "fault"),
    [(0, "backwards"), (10**6, "beyondEnd"), ("-3", "negative"), (2**63, "beyondEnd")],
    ids=["goes back", "jumps beyond its end", "is negative", "is no count at all"],
)
def test_progress_that_cannot_be_true_is_a_fault_and_the_line_is_kept_when_it_is_true_again(node, says, fault):
    node.programs["a"].speed = 0.85
    node.run(100)
    before = node.cap("a")
    node.programs["a"].says = says
    node.run(20)
    assert 0.9 <= node.cap("a") <= 4.0
    assert counted(node, "punctual_file_faults_total", kind=fault) == 1
    node.programs["a"].says = None
    node.run(60)
    assert node.cap("a") == pytest.approx(before, rel=0.25)
    node.run(420)
    assert node.in_time("a", "b", "c", "d")


def test_progress_that_jumps_ahead_takes_nothing_from_the_others_and_ends_in_time_itself(node):
    node.run(100)
    node.programs["a"].says = 500  # a lie that can be true; from now on it seems to stand still
    node.run(100)
    node.programs["a"].says = None
    node.run(400)
    assert node.in_time("a", "b", "c", "d")


def test_progress_that_has_stopped_for_good_costs_the_others_no_deadline(node):
    node.run(100)
    node.programs["a"].says = 100
    node.run(490)
    assert node.in_time("b", "c", "d")


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_step_of_the_wall_clock_changes_no_cap(node, step):
    node.programs["a"].speed = 0.75
    node.run(200)
    before = node.caps
    node.wall += step
    for caps in node.run(30):
        assert caps == pytest.approx(before, rel=0.15)
    node.run(370)
    assert node.in_time("a", "b", "c", "d")


def test_a_cgroup_that_vanishes_between_read_and_write_is_counted_and_its_cpu_is_the_others(node, monkeypatch):
    node.programs["b"].speed = 0.75
    node.run(100)
    gone, real = node.programs["a"], Hierarchy.set_cap

    def set_cap(self, folder, cap, *, there):
        if str(gone.folder) in folder and gone.ended is None:
            gone.ended = node.now
            node.tree.remove(gone.folder)
        real(self, folder, cap, there=there)

    monkeypatch.setattr(Hierarchy, "set_cap", set_cap)
    node.tree.folder(next(path for path in gone.folder.iterdir() if path.is_dir()), quota=50_000)
    node.second()
    assert gone.ended is not None, "the story's point: it vanished when it was to be written"
    assert counted(node, "punctual_cgroup_writes_total", result="vanished") >= 1
    assert node.reports[gone.uid].cap is None or node.reports[gone.uid].cap == 0.5
    node.run(2)
    assert gone.uid not in node.agent._steering._pods, "it claims no CPU"
    node.run(500)
    assert node.in_time("b", "c", "d")


def test_caps_rewritten_by_others_are_put_back_at_the_next_tick_and_counted(node):
    node.programs["a"].speed = 0.75
    node.run(200)
    before, drift = node.cap("a"), counted(node, "punctual_cgroup_drift_total")
    container = next(path for path in node.programs["a"].folder.iterdir() if path.is_dir())
    for n, quota in enumerate((-1, 1_000, 400_000, 20_000), 1):
        node.tree.folder(container, quota=quota)
        node.second()
        assert node.cap("a") == pytest.approx(before, rel=0.1)
        assert counted(node, "punctual_cgroup_drift_total") == drift + n
        assert node.reports[node.programs["a"].uid].drift == drift + n
    node.run(400)
    assert node.in_time("a", "b", "c", "d")


def test_an_agent_that_is_killed_and_starts_again_goes_on_without_a_bump(node):
    node.programs["a"].speed = 0.75
    node.run(200)
    before = node.caps
    assert before["a"] > 1.1
    node.start()
    for caps in node.run(60):
        assert caps["a"] == pytest.approx(before["a"], rel=0.1)
        assert all(caps[name] > 0.8 for name in "bcd"), "what it needs beyond its processor, and no more"
    node.run(340)
    assert node.in_time("a", "b", "c", "d")


def test_an_agent_that_is_killed_while_the_operator_is_away_leaves_safe_caps(node):
    node.programs["a"].speed = 0.75
    node.run(200)
    before = node.caps
    node.start()
    assert node.run(5, operator=False)[-1] == before
    assert node.run(10, operator=False)[-1] == dict.fromkeys("abcd", 1.0)


def test_while_the_operator_is_away_for_ten_minutes_lines_are_kept(node):
    for one in node.programs.values():
        one.units, one.planned = 1200, one.planned + 600.0
    node.run(300)
    for one in node.programs.values():
        one.speed = 0.95
    node.run(50, operator=False)
    node.programs["a"].speed = 0.75
    node.run(550, operator=False)
    assert node.cap("a") > 1.1
    node.run(300)
    assert node.in_time("a", "b", "c", "d")


def test_a_chunk_whose_line_ends_while_the_operator_is_away_is_late_by_no_more_than_without_it(node):
    """What the operator alone can do is to cut it again; the agent gives it what it may have without orders."""
    late = node.programs["a"]
    late.speed, late.units = 0.5, 1200
    node.run(100)
    node.run(600, operator=False)
    assert node.in_time("b", "c", "d")
    assert node.cap("a") == 1.0, "its line has ended: its rest cap"
    done = late.done
    node.run(60)
    assert late.done - done > 60 * 0.5 / 0.875, "the operator is back: it has what others leave"


def test_metrics_tell_the_lines_those_out_of_reach_and_the_caps_written_for_them(node):
    node.run(2)
    assert counted(node, "punctual_agent_lines") == 4
    assert counted(node, "punctual_agent_lines_saturated") == 0
    node.programs["a"].speed = 0.05
    node.run(250)
    assert counted(node, "punctual_agent_lines_saturated") == 1
    # what was written before the first line was there is no line's
    written = counted(node, "punctual_cgroup_writes_total", result="written")
    assert written - 8 <= counted(node, "punctual_agent_line_writes_total") < written
    assert counted(node, "punctual_agent_applications") == 0


def test_small_steps_of_a_cap_are_not_written_but_the_last_one_to_a_whole_processor_is(node, monkeypatch):
    node.run(2)
    written = []
    for cap in (0.995, 0.985, 0.99, 1.0):
        monkeypatch.setattr(Steering, "caps", lambda self, now, pressure, cap=cap: dict.fromkeys(self._pods, cap))
        node.run(2)
        written.append(node.cap("a"))
    assert written == [1.0, 0.985, 0.985, 1.0]
