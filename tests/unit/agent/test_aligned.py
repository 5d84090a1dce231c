"""Aligned pods: what they have, what outlives the agent, and what is steered and reported by the leader's clock."""

import errno
import json
import os
import queue
import threading
import time
from pathlib import Path

import pytest

import punctual_agent
from punctual.control.clock_offset import UNCERTAIN
from punctual.control.phase import Move as PhaseMove
from punctual.control.phase import Phase
from punctual.wire import ApplicationOrder, GridOrder, SetPoint, SetPoints
from punctual_agent.cgroup import Cap
from punctual_agent.modes.application import ApplicationMode, Move
from punctual_agent.operator_client import Answered
from punctual_agent.operator_clock import OperatorClock
from punctual_agent.phases import PhaseThread, Steered
from punctual_agent.state import Saved, State

A = "0aaf2a3c-18c2-4a3e-9d5e-000000000001"
CHUNK, NEW = "0aaf2a3c-18c2-4a3e-9d5e-0000000000cc", "0aaf2a3c-18c2-4a3e-9d5e-0000000000ee"
PAIR, OTHER, LIMIT = Cap(30_000, 100_000), Cap(33_000, 110_000), Cap(90_000)
HIGHEST = {"v1": 262_144, "v2": 10_000}
USUAL = {"v1": 1_024, "v2": 100}


@pytest.fixture
def start(tree, tmp_path):
    made = []

    def start(pod="agent-1", now=0.0, *, end=True):
        """An agent of a new pod of its own, or of one that was there; the one before is killed."""
        if made and end:
            made[-1]._lock.release()
        for folder in (pod, "node"):
            (tmp_path / folder).mkdir(exist_ok=True)
        made.append(tree.agent(State(tmp_path / pod, tmp_path / "node"), now))
        return made[-1]

    yield start
    for one in made:
        one._lock.release()


def answer(*, begins=None, grid=True, epoch=1, named=True, cap=0.3, sent=None):
    order = ApplicationOrder(grid=GridOrder(begins=begins, slice=0.03) if grid else None)
    pods = [SetPoint(uid=A, cap=cap, rest_cap=cap, period=0.1, mode=order)] if named else []
    return SetPoints(epoch=epoch, pods=pods, applications_complete=True, sent=sent)


def heard(agent, now, *, bound=0.0005, ahead=1000.0, **more):
    """Let the agent hear an answer of a leader with a clock so far ahead."""
    agent.hear(Answered(answer(sent=now - bound + ahead, **more), now - 2 * bound, now), now)


def weight(tree, pod):
    return tree.priority(pod)[1]


def capped(tree, pod):
    return pod if tree.version == "v2" else min(path for path in pod.iterdir() if path.is_dir())


def name_of(tree, pod):
    return str(capped(tree, pod)).removeprefix(str(pod))


def caps(tree, pod):
    return [tree.cap(folder) for folder in (pod, *sorted(path for path in pod.iterdir() if path.is_dir()))]


def test_one_level_of_an_aligned_pod_is_capped_and_its_weight_is_the_highest_until_it_is_let_go(tree, start):
    pod = tree.pod(A, quota=90_000)
    agent = start()
    agent.tell(answer(), 1.0)
    one_level = [LIMIT, PAIR, PAIR] if tree.version == "v1" else [PAIR, LIMIT, LIMIT]
    assert (caps(tree, pod), weight(tree, pod)) == (one_level, HIGHEST[tree.version])
    (report,) = agent.tick(2.0).pods
    assert (report.cap, report.period, report.drift) == (0.3, 0.1, 0)
    agent.tell(answer(grid=False), 3.0)
    assert weight(tree, pod) == 100
    assert caps(tree, pod) == [LIMIT if tree.version == "v1" else PAIR, PAIR, PAIR]
    agent.tell(answer(), 4.0)
    agent.tell(answer(named=False), 5.0)
    assert (caps(tree, pod), weight(tree, pod)) == ([LIMIT] * 3, 100)
    agent.tick(6.0)
    assert agent._pods[A].mode is None


def test_a_weight_that_another_program_changes_is_raised_again_and_is_its_own_afterwards(tree, start):
    pod = tree.pod(A, quota=90_000)
    file = pod / ("cpu.weight" if tree.version == "v2" else "cpu.shares")
    agent = start()
    agent.tell(answer(), 1.0)
    tree.write(file, "70\n")
    assert agent.tick(2.0).pods[0].drift == 1
    assert weight(tree, pod) == HIGHEST[tree.version]
    assert agent.tick(3.0).pods[0].drift == 1
    agent.tell(answer(named=False), 4.0)
    assert weight(tree, pod) == 70


def test_what_a_pod_had_before_survives_the_agents_pod(tree, start):
    pod = tree.pod(A, quota=90_000)
    start().tell(answer(), 1.0)
    again = start("agent-2", now=10.0)
    assert again.tick(10.0).pods[0].drift == 0
    again.tell(answer(named=False, epoch=2), 11.0)
    assert (caps(tree, pod), weight(tree, pod)) == ([LIMIT] * 3, 100)


def test_an_agent_that_waits_for_the_lock_saves_nothing_and_goes_on_with_what_the_other_has_saved(tree, start):
    pod = tree.pod(A, quota=90_000)
    first = start()
    second = start("agent-2", end=False)
    second.tell(answer(), 0.5)
    first.tell(answer(), 1.0)
    second.tick(1.5)
    first._lock.release()
    second.tick(2.0)
    second.tell(answer(named=False), 3.0)
    assert (caps(tree, pod), weight(tree, pod)) == ([LIMIT] * 3, 100)


@pytest.mark.parametrize("spoiled", ["another boot", "{", "[]"])
def test_a_file_of_another_boot_and_one_that_makes_no_sense_count_as_empty(tmp_path, spoiled):
    state = State(tmp_path)
    mode = ApplicationMode(PAIR)
    state.save(Saved(3, 5.0, {A: mode}))
    state.save_moves({A: {"": (OTHER, PAIR)}})
    assert State(tmp_path).load().modes == {A: mode}
    for name in ("moves.json", "applications.json"):
        file = tmp_path / name
        text = file.read_text() if spoiled == "another boot" else spoiled
        file.write_text(text.replace(json.dumps(state._boot), '"earlier"'))
        found = State(tmp_path).load()
        assert found == Saved(3, 5.0, {A: mode} if name == "moves.json" else {})


def test_without_what_was_saved_the_weight_is_that_of_a_new_folder(tree, start, tmp_path):
    pod = tree.pod(A, quota=90_000)
    start().tell(answer(), 1.0)
    (tmp_path / "node/applications.json").unlink()
    again = start("agent-2", now=10.0)
    again.tell(answer(named=False), 11.0)
    assert weight(tree, pod) == HIGHEST[tree.version], "it is not known to be ours"
    again.tell(answer(), 12.0)
    again.tell(answer(named=False), 13.0)
    assert weight(tree, pod) == USUAL[tree.version]


def gone(folder, _monkeypatch):
    """The node's folder is removed."""
    aside = folder.with_name("aside")
    folder.rename(aside)
    return lambda: aside.rename(folder)


def full(folder, _monkeypatch):
    """Its disk is full."""
    files = [folder / f"{name}.partial" for name in ("applications", "moves")]
    for file in files:
        file.symlink_to("/dev/full")
    return lambda: [file.unlink() for file in files]


def read_only(folder, monkeypatch):
    """It is mounted again, read-only."""
    real = os.replace

    def refusing(source, goal):
        if folder in source.parents:
            raise OSError(errno.EROFS, "Read-only file system", str(source))
        real(source, goal)

    monkeypatch.setattr(os, "replace", refusing)
    return monkeypatch.undo


@pytest.fixture(params=[gone, full, read_only])
def fail(request, tmp_path, monkeypatch):
    """Let the node's folder fail; the function returned ends that."""
    return lambda: request.param(tmp_path / "node", monkeypatch)


def test_where_limits_cannot_be_saved_users_pods_stay_as_they_are_and_all_else_goes_on(tree, start, fail, caplog):
    caplog.set_level("INFO")
    pod, chunk = tree.pod(A, quota=90_000), tree.pod(CHUNK)
    new = tree.pod(NEW, quota=90_000)
    agent = start()
    agent.tell(answer(), 1.0)
    before = caps(tree, pod), weight(tree, pod)
    recover = fail()
    order = ApplicationOrder(grid=GridOrder(slice=0.04))
    points = [SetPoint(uid=uid, cap=0.4, rest_cap=0.4, period=0.1, mode=order) for uid in (A, NEW)]
    for now, cap in ((2.0, 0.2), (3.0, 0.25)):
        points = [*points[:2], SetPoint(uid=CHUNK, cap=cap, rest_cap=0.7)]
        assert agent.tell(SetPoints(epoch=1, pods=points, applications_complete=True), now)
        assert len(agent.tick(now + 0.5).pods) == 3
        assert caps(tree, chunk)[1] == Cap.of(cap, 0.1), "others are held"
        assert (caps(tree, pod), weight(tree, pod)) == before
        assert caps(tree, new) == [LIMIT] * 3
        assert weight(tree, new) == 100
    assert not agent.phases._may_write
    tree.folder(capped(tree, pod), quota=50_000)  # another program lowers what it may have
    agent.tick(4.0)
    assert tree.cap(capped(tree, pod)) == Cap(50_000)
    recover()
    agent.tick(5.0)
    assert [one.message for one in caplog.records if "limits" in one.message] == ["limits_not_saved", "limits_saved"]
    assert tree.cap(capped(tree, new)) == Cap(40_000)
    assert tree.cap(capped(tree, pod)) == Cap(40_000)
    assert weight(tree, new) == HIGHEST[tree.version]
    again = start("agent-2", now=10.0)
    again.tell(answer(named=False, epoch=2), 11.0)
    assert (caps(tree, new), weight(tree, new)) == ([LIMIT] * 3, 100)
    assert tree.cap(capped(tree, pod)) == Cap(50_000)


def test_a_pod_that_is_let_go_gets_its_limits_back_also_where_nothing_can_be_saved(tree, start, tmp_path):
    pod = tree.pod(A, quota=90_000)
    agent = start()
    agent.tell(answer(), 1.0)
    recover = gone(tmp_path / "node", None)
    agent.tell(answer(named=False), 2.0)
    assert (caps(tree, pod), weight(tree, pod)) == ([LIMIT] * 3, 100)
    recover()
    again = start("agent-2", now=10.0)  # it was killed before it could save that
    again.tick(10.0)
    again.tell(answer(named=False, epoch=2), 11.0)
    assert (caps(tree, pod), weight(tree, pod)) == ([LIMIT] * 3, 100)


def test_no_slice_is_moved_while_the_move_cannot_be_saved(tree, start, tmp_path):
    pod = tree.pod(A, quota=90_000)
    agent = start()
    heard(agent, 1.0, begins=1001.25)
    agent.tick(2.0)
    phases = agent.phases
    phases._renew()
    key = A, name_of(tree, pod)
    one = phases._folders[key]
    recover = full(tmp_path / "node", None)
    assert not phases._write(key, one, 0.11)
    assert tree.cap(capped(tree, pod)) == PAIR
    assert agent.tick(3.0).pods[0].drift == 0
    recover()
    agent.tick(4.0)
    assert phases._write(key, one, 0.11)
    assert tree.cap(capped(tree, pod)) == OTHER
    for key in list(phases._folders):
        phases._drop(key)


@pytest.mark.parametrize("may_write", [True, False])
def test_only_a_move_that_was_written_is_counted(tree, start, may_write):
    pod = tree.pod(A, quota=90_000)
    first = start()
    first.tell(answer(), 1.0)
    agent = first if may_write else start("agent-2", end=False)  # the other agent holds the node's lock
    heard(agent, 1.0, begins=1001.25)
    agent.tick(2.0)
    phases = agent.phases
    phases._clock = lambda: 1.3
    phases._renew()
    key = A, name_of(tree, pod)
    one = phases._folders[key]
    one.control.phase, one.control.stage = Phase(1.26, 0.0001, 1.9), PhaseMove(0.1, 0.01, 1.26, writing=True)
    phases._do(key, one)
    assert tree.cap(capped(tree, pod)) == (OTHER if may_write else PAIR)
    phases._tell(key, one)
    agent.tick(3.0)
    counted = agent._metrics.registry.get_sample_value("punctual_agent_phase_moves_total")
    assert (phases.known()[key].moves, phases.known()[key].failed, counted) == (may_write, 0, may_write)
    for name in list(phases._folders):
        phases._drop(name)


def test_the_moves_of_a_folder_that_is_steered_anew_are_counted_from_its_begin(tree, start):
    pod = tree.pod(A, quota=90_000)
    agent = start()
    heard(agent, 1.0, begins=1001.25)
    for now, moves in ((2.0, 3), (3.0, 1), (4.0, 2)):
        agent.phases._known = {(A, name_of(tree, pod)): Steered(0.1, None, None, moves, 0)}
        agent.tick(now)
    assert agent._metrics.registry.get_sample_value("punctual_agent_phase_moves_total") == 5


def test_the_pair_of_a_move_is_no_limit_and_the_tick_leaves_it_alone(tree, start):
    pod = tree.pod(A, quota=90_000)
    folder = capped(tree, pod)
    agent = start()
    agent.tell(answer(), 1.0)
    agent.phases._moves[A, name_of(tree, pod)] = Move(OTHER, PAIR)
    tree.folder(folder, quota=OTHER.quota, period=OTHER.period)
    (report,) = agent.tick(2.0).pods
    assert (tree.cap(folder), report.drift, report.period) == (OTHER, 0, 0.1)
    agent.tell(answer(cap=0.4), 2.5)
    assert tree.cap(folder) == Cap(40_000), "another pair ends the move"
    tree.folder(folder, quota=PAIR.quota)
    assert agent.tick(3.0).pods[0].drift == 0, "the end of the move"
    agent.tell(answer(named=False), 4.0)
    assert caps(tree, pod) == [LIMIT] * 3


@pytest.mark.parametrize("left", [OTHER, PAIR, Cap(None, OTHER.period)], ids=str)
def test_after_a_move_that_was_interrupted_the_pair_is_written_again_and_the_limit_is_known(tree, start, left):
    pod = tree.pod(A, quota=90_000)
    agent, name = start(), name_of(tree, pod)
    agent.tell(answer(), 1.0)
    agent.phases._moves[A, name] = Move(OTHER, PAIR)
    agent.phases._save()
    tree.folder(capped(tree, pod), quota=-1 if left.quota is None else left.quota, period=left.period)
    again = start("agent-2", now=10.0)
    assert again.tick(10.0).pods[0].drift == 0
    assert tree.cap(capped(tree, pod)) == PAIR
    again.tell(answer(named=False), 11.0)
    assert caps(tree, pod) == [LIMIT] * 3


class Moving:
    """An agent, and each of its steps while it moves the slices of one pod and after it."""

    def __init__(self, tree, agent, pod):
        self.agent, self.phases, self.now = agent, agent.phases, 2.0
        self.key, self.folder, self.tree = (A, name_of(tree, pod)), capped(tree, pod), tree
        heard(agent, 1.0, begins=1001.25)
        self.steps = (self.tick, self.begin, self.tick, self.tick, self.end, *[self.tick, self.tell] * 4)

    def tick(self):
        self.now += 1.0
        report = self.agent.tick(self.now)
        self.phases._renew()
        assert not [pod.drift for pod in report.pods if pod.drift]

    def tell(self):
        self.now += 0.1
        heard(self.agent, self.now, begins=1001.25, cap=0.3)
        self.phases._renew()

    def begin(self):
        assert self.phases._write(self.key, self.phases._folders[self.key], 0.11)
        assert self.tree.cap(self.folder) == OTHER

    def end(self):
        assert self.phases._write(self.key, self.phases._folders[self.key], 0.1)
        assert self.tree.cap(self.folder) == PAIR

    def drop(self):
        for key in list(self.phases._folders):
            self.phases._drop(key)


@pytest.mark.parametrize("dies", range(14))
def test_whenever_an_agent_dies_around_a_move_its_pairs_are_no_limits_and_the_file_is_cleared(
    tree, start, tmp_path, dies
):
    pod, file = tree.pod(A, quota=90_000), tmp_path / "node/moves.json"
    one = Moving(tree, start(), pod)
    for step in one.steps[:dies]:
        step()
    assert file.exists() == (2 <= dies <= 7), "until two looks after its end"
    one.drop()
    tree.put_aside(pod)  # it is not found at first
    for n in (2, 3):
        other = start(f"agent-{n}", now=10.0 * n)
        other.tick(10.0 * n)
        other.phases._renew()
        assert not file.exists()
    tree.put_aside(pod)
    again = start("agent-4", now=40.0)
    assert again.tick(40.0).pods[0].drift == 0
    again.tell(answer(named=False), 41.0)
    assert caps(tree, pod) == [LIMIT] * 3


def test_a_pod_that_ends_within_a_move_leaves_the_file(tree, start, tmp_path):
    pod, file = tree.pod(A, quota=90_000), tmp_path / "node/moves.json"
    one = Moving(tree, start(), pod)
    one.tick()
    one.begin()
    tree.remove(pod)
    for _ in range(3):
        one.tick()
    assert not file.exists()
    assert not one.phases._moves
    one.drop()


@pytest.mark.parametrize("rewritten", ["weight", "wider", "lower", "period"])
def test_what_another_program_writes_counts_as_drift_is_put_back_and_the_phase_is_found_anew(tree, start, rewritten):
    pod = tree.pod(A, quota=90_000)
    agent = start()
    heard(agent, 1.0, begins=1001.25)
    agent.tick(2.0)
    agent.phases._renew()
    folder, key = capped(tree, pod), (A, name_of(tree, pod))
    one = agent.phases._folders[key]
    one.control.phase = Phase(1.26, 0.0001, 1.9)
    match rewritten:
        case "weight":
            tree.write(pod / ("cpu.weight" if tree.version == "v2" else "cpu.shares"), "70\n")
        case "wider":
            tree.folder(folder, quota=70_000)
        case "lower":
            tree.folder(folder, quota=20_000)
        case "period":
            tree.folder(folder, quota=27_000, period=50_000)
    assert agent.tick(3.0).pods[0].drift == 1
    agent.phases._renew()
    assert tree.cap(folder) == (Cap(20_000) if rewritten == "lower" else PAIR), "a lower limit is obeyed"
    assert weight(tree, pod) == HIGHEST[tree.version]
    found = agent.phases._folders.get(key)
    assert (found is None) == (rewritten == "lower"), "its slices are not the application's"
    assert found is None or found.control.phase is None
    assert agent.tick(4.0).pods[0].drift == 1
    for name in list(agent.phases._folders):
        agent.phases._drop(name)


def test_a_wall_clock_that_is_set_changes_nothing(tree, tmp_path):
    tree.pod(A, quota=90_000)
    found = []
    for off in (0.0, 3600.0, -3600.0):
        wall = [1e9]
        agent = tree.agent(State(tmp_path), wall=lambda wall=wall: wall[0])
        heard(agent, 10.0, begins=1010.25)
        agent.tick(11.0)
        wall[0] += off
        heard(agent, 12.0, begins=1010.25)
        report = agent.tick(13.0)
        found.append((targets(agent), report.host, report.pods))
        agent._lock.release()
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("module", ["phases", "aligned_pods", "operator_clock", "operator_client", "actuator"])
def test_no_part_of_steering_reads_the_wall_clock(module):
    source = Path(punctual_agent.__file__).with_name(f"{module}.py").read_text()
    assert "time.time" not in source
    assert "datetime" not in source


@pytest.mark.parametrize("late", ["there", "back"])
def test_a_network_that_is_slow_one_way_makes_the_clock_uncertain_and_moves_nothing(tree, start, late):
    """By 20 ms: the agent errs by 10 ms, and knows that it may."""
    tree.pod(A, quota=90_000)
    agent = start()
    for second in range(1, 4):
        sent, received = second + 0.0, second + 0.0204
        left = sent + (0.0202 if late == "there" else 0.0002)
        agent.hear(Answered(answer(begins=1010.25, sent=left + 1000.0), sent, received), received)
    report = agent.tick(4.0)
    assert report.host.clock.bound >= abs(agent._aligned._offset.offset - 1000.0) > 0.009
    assert report.host.clock.bound > UNCERTAIN * 0.03, "so the leader says ClockUncertain"
    assert {one.begins for one in targets(agent)} == {None}


def targets(agent):
    return list(agent.phases._targets.values())


def test_a_grid_is_followed_by_this_nodes_clock_while_the_leaders_is_known_well_enough(tree, start):
    pod = tree.pod(A, quota=90_000)
    agent = start()
    heard(agent, 10.0, begins=1010.25)
    agent.tick(11.0)
    assert targets(agent)[0].path == str(capped(tree, pod))
    assert targets(agent)[0].begins == pytest.approx(10.25)
    assert 0.0005 <= targets(agent)[0].bound < 0.001
    assert agent.tick(12.0).host.clock.bound < 0.001
    again = start("agent-2", now=20.0)
    heard(again, 20.0, begins=1020.25, bound=0.0031)
    again.tick(21.0)
    assert {one.begins for one in targets(again)} == {None}, "more than a tenth of the slice"
    heard(again, 22.0, begins=None)
    again.tick(23.0)
    assert {one.begins for one in targets(again)} == {None}


def test_phases_are_reported_on_the_clock_of_the_leader_that_answered_last(tree, start):
    pod = tree.pod(A, quota=90_000)
    agent = start()
    heard(agent, 10.0, begins=1010.25)
    agent.tick(11.0)
    agent.phases._known = {(A, name_of(tree, pod)): Steered(0.1, Phase(10.26, 0.0001, 10.9), 0.01, 2, 1)}
    found = agent.tick(12.0).pods[0].phase
    assert found.begins == pytest.approx(1012.06)
    assert (found.error, found.moves, found.failed) == (0.01, 2, 1)
    assert found.age == pytest.approx(1.1)
    heard(agent, 13.0, epoch=2, ahead=5000.0, named=False)
    heard(agent, 13.5, epoch=2, ahead=5000.0)
    report = agent.tick(14.0)
    assert (report.epoch, report.pods[0].phase.begins) == (2, pytest.approx(5014.06))


def test_the_grid_of_an_earlier_leader_is_not_followed(tree, start):
    tree.pod(A, quota=90_000)
    agent = start()
    heard(agent, 10.0, begins=1010.25)
    answered = SetPoints(epoch=2, sent=7010.9995)
    agent.hear(Answered(answered, 10.999, 11.0), 11.0)
    agent.tick(12.0)
    assert {one.begins for one in targets(agent)} == {None}


def test_only_a_folder_that_ran_is_steered_and_its_throttling_is_reported(tree, start):
    pod = tree.pod(A, quota=90_000)
    agent = start()
    agent.tell(answer(), 1.0)
    agent.tick(2.0)
    tree.count(capped(tree, pod), periods=14, throttled=9, seconds=1.0)
    assert agent.tick(3.0).pods[0].throttled == pytest.approx(0.8)
    ran = [one.path for one in targets(agent) if one.runs]
    assert ran == [str(capped(tree, pod))]
    assert agent.tick(4.0).pods[0].throttled is None
    assert not any(one.runs for one in targets(agent))


def test_an_operator_of_the_release_before_tells_nothing_of_its_clock():
    clock = OperatorClock()
    clock.hear(Answered(SetPoints(epoch=3), 1.0, 1.001))
    assert (clock.at(2.0), clock.epoch) == (None, 3)
    clock.hear(Answered(SetPoints(epoch=3, sent=50.0), 1.0, 1.001))
    assert clock.at(2.0).offset == pytest.approx(48.9995)
    clock.hear(Answered(SetPoints(epoch=4), 3.0, 3.001))
    assert clock.at(4.0) is None


def test_a_fault_of_the_thread_reaches_the_main_thread(tree, start, monkeypatch):
    tree.pod(A, quota=90_000)
    agent = start()
    agent.tell(answer(), 1.0)
    inbox = queue.SimpleQueue()

    def broken(_phases):
        raise ZeroDivisionError

    monkeypatch.setattr("punctual_agent.phases.Phases._step", broken)
    thread = PhaseThread(agent.phases, inbox.put)
    thread.start()
    assert isinstance(inbox.get(timeout=60), ZeroDivisionError)
    thread.join()


def test_the_thread_searches_at_most_four_folders_at_a_time_and_ends_when_told(make_tree, tmp_path):
    tree = make_tree()
    agent = tree.agent(State(tmp_path))
    uids = [f"{A[:-2]}{n:02}" for n in range(9)]
    pods = [tree.pod(uid, quota=90_000) for uid in uids]
    order = ApplicationOrder(grid=GridOrder(slice=0.03))
    points = [SetPoint(uid=uid, cap=0.3, rest_cap=0.3, period=0.1, mode=order) for uid in uids]
    agent.tell(SetPoints(epoch=1, pods=points), 1.0)
    agent.tick(2.0)
    for pod in pods:
        tree.count(pod, periods=14, throttled=9, seconds=1.0)
    agent.tick(3.0)
    assert sum(one.runs for one in targets(agent)) == 9
    phases, most, searched = agent.phases, [0], set()
    real = phases._do

    def doing(key, one):
        real(key, one)
        under_way = {key for key, one in phases._folders.items() if one.control.searching}
        searched.update(under_way)
        most[0] = max(most[0], len(under_way))

    phases._do = doing
    thread = threading.Thread(target=phases.run)
    thread.start()
    limit = time.monotonic() + 60
    while len(searched) < 9 and time.monotonic() < limit:
        time.sleep(0.01)
    phases.end()
    thread.join()
    assert (len(searched), most[0]) == (9, 4)
    assert not phases._folders
    agent._lock.release()
