"""An agent's seconds, told as stories: the tree is in a temporary folder, the clock is the test's."""

import os
import shutil

import pytest
from prometheus_client import generate_latest

import punctual_agent.metrics
from punctual.wire import SetPoint, SetPoints
from punctual_agent.actuator import Actuator
from punctual_agent.agent import FORGET_AFTER, _bound
from punctual_agent.cgroup import Cap, Hierarchy, NodeUse, Throttling
from punctual_agent.modes.hold import HoldMode
from punctual_agent.state import State

A, B = "a" * 8, "b" * 8


@pytest.fixture
def state(tmp_path):
    (tmp_path / "state").mkdir()
    return State(tmp_path / "state")


@pytest.fixture
def start(tree, state):
    made = []

    def start(now=0.0, state=state):
        made.append(tree.agent(state, now))
        return made[-1]

    yield start
    for agent in made:
        kill(agent)


def kill(agent):
    """What the kernel does when the process is killed."""
    agent._lock.release()


def point(uid, cap, rest=0.9, **more):
    return SetPoint(uid=uid, cap=cap, rest_cap=rest, period=0.1, **more)


def cap(tree, uid):
    return Actuator(tree.hierarchy()).hold(uid, None).cap


def value(agent, name, **labels):
    return agent._metrics.registry.get_sample_value(name, labels)


def test_a_pod_with_the_volume_is_reported_before_its_first_set_point(tree, start):
    tree.pod(A, quota=50_000)
    (tree.volume(A) / "progress").write_text("12")
    (tree.volume(B) / "progress").write_text("x")
    report = start().tick(1.0)
    assert (report.node, report.sequence, report.epoch, report.started) == ("n1", 1, 0, 1.0)
    assert report.host.can_write
    a, b = report.pods
    assert (a.uid, a.done, a.cap, a.period, a.cpu_seconds) == (A, 12, 0.5, 0.1, 1.5)
    assert (b.uid, b.done, b.cap, b.faults) == (B, None, None, {"progress": {"notANumber": 1}})
    assert cap(tree, A) == Cap(50_000)  # nobody told us anything


def test_story_of_set_points(tree, start):
    tree.pod(A)
    tree.pod(B)
    agent = start()
    log = []
    for now, points in (
        (1.0, [point(A, 0.3)]),
        (2.0, [point(A, 0.5), point(B, 0.2)]),
        (3.0, [point(B, 0.4)]),  # A is not named: a new leader may not know it yet
        (4.0, None),  # no answer
    ):
        agent.tick(now)
        if points is not None:
            assert agent.tell(SetPoints(epoch=2, pods=points), now)
        log.append([one and one.cores for one in (cap(tree, A), cap(tree, B))])
    assert log == [[0.3, None], [0.5, 0.2], [0.5, 0.4], [0.5, 0.4]]


def test_the_job_of_a_pod_is_reported_while_the_operator_does_not_name_the_pod(tree, start):
    """After a restore the API server may know neither: only the node does."""
    for uid in (A, B):
        tree.pod(uid)
    agent = start()
    log = []
    for now, points in (
        (1.0, [point(A, 0.3, job="team/one"), point(B, 0.2)]),
        (2.0, [point(B, 0.2)]),
        (3.0, None),
        (4.0, [point(A, 0.3, job="team/one")]),
    ):
        log.append([pod.job for pod in agent.tick(now).pods])
        if points is not None:
            agent.tell(SetPoints(epoch=2, pods=points), now)
    log.append([pod.job for pod in agent.tick(5.0).pods])
    assert log == [[], [None, None], ["team/one", None], ["team/one", None], [None, None]]


def test_a_lower_epoch_changes_nothing(tree, start):
    tree.pod(A)
    agent = start()
    assert agent.tell(SetPoints(epoch=5, pods=[point(A, 0.3)]), 1.0)
    assert not agent.tell(SetPoints(epoch=4, pods=[point(A, 0.8)]), 2.0)
    assert agent.tick(3.0).epoch == 5
    assert cap(tree, A) == Cap.of(0.3, 0.1)
    assert agent.tell(SetPoints(epoch=5, pods=[point(A, 0.4)]), 4.0)
    assert cap(tree, A) == Cap.of(0.4, 0.1)


def test_a_restarted_agent_still_refuses_an_old_leader_and_leaves_pods_at_rest(tree, start):
    tree.pod(A)
    first = start()
    first.tick(1.0)
    first.tell(SetPoints(epoch=5, pods=[point(A, 0.3, rest=0.7)]), 1.0)
    kill(first)
    second = start(now=100.0)
    assert second.instance != first.instance
    report = second.tick(100.0)
    assert (report.epoch, report.sequence) == (5, 1)
    assert cap(tree, A) == Cap.of(0.3, 0.1)  # for a lease, in which the operator answers
    second.tick(105.0)
    assert cap(tree, A) == Cap.of(0.3, 0.1)
    second.tick(105.1)
    assert cap(tree, A) == Cap.of(0.7, 0.1)  # what it finishes in time with, until someone knows better
    assert not second.tell(SetPoints(epoch=4, pods=[point(A, 0.1)]), 106.0)
    assert second.tell(SetPoints(epoch=6, pods=[point(A, 0.2)]), 107.0)
    assert cap(tree, A) == Cap.of(0.2, 0.1)


def test_while_the_operator_is_away_caps_are_held_and_in_the_end_pods_rest(tree, start):
    pod = tree.pod(A)
    agent = start()
    agent.tell(SetPoints(epoch=1, pods=[point(A, 0.3, rest=0.7)]), 1.0)
    container = next(path for path in pod.iterdir() if path.is_dir())
    tree.folder(container)  # as a daemon-reload leaves it
    assert agent.tick(60.0).pods[0].drift == 1
    assert cap(tree, A) == Cap.of(0.3, 0.1)
    agent.tick(61.1)
    assert cap(tree, A) == Cap.of(0.7, 0.1)
    agent.tell(SetPoints(epoch=1, pods=[point(A, 0.4)]), 62.0)
    assert cap(tree, A) == Cap.of(0.4, 0.1)
    assert agent.tick(63.0).pods[0].drift == 1
    assert value(agent, "punctual_cgroup_drift_total") == 1


def test_rest_caps_are_saved_before_told_caps_are_written(tree, start, state, monkeypatch):
    tree.pod(A)
    agent = start()
    seen = []
    real = Actuator.write

    def noting(self, uid, wanted, held):
        seen.append((wanted, state.load().modes.get(uid)))
        return real(self, uid, wanted, held)

    monkeypatch.setattr(Actuator, "write", noting)
    agent.tell(SetPoints(epoch=1, pods=[point(A, 0.3, rest=0.7)]), 1.0)
    assert seen == [(Cap.of(0.3, 0.1), HoldMode(0.7, 0.1))]


def test_an_end_in_order_leaves_rest_caps_and_no_heartbeat(tree, start, state):
    tree.pod(A)
    agent = start()
    agent.tick(1.0)
    agent.tell(SetPoints(epoch=1, pods=[point(A, 0.3, rest=0.7), point(B, 0.3)]), 1.0)
    assert state.heartbeat() == 1.0
    agent.rest()
    assert cap(tree, A) == Cap.of(0.7, 0.1)
    assert state.heartbeat() is None


def test_of_two_agents_only_the_first_writes_and_the_second_takes_over(tree, start, tmp_path):
    tree.pod(A)
    (tmp_path / "other").mkdir()
    old, new = start(), start(state=State(tmp_path / "other"))
    old.tell(SetPoints(epoch=1, pods=[point(A, 0.3)]), 1.0)
    assert not new.tick(1.0).host.can_write
    new.tell(SetPoints(epoch=1, pods=[point(A, 0.6)]), 1.0)
    assert cap(tree, A) == Cap.of(0.3, 0.1)
    old.rest()
    assert new.tick(2.0).host.can_write
    assert cap(tree, A) == Cap.of(0.6, 0.1)
    assert not old.tick(3.0).host.can_write


def test_a_pod_that_ends_is_reported_with_what_it_last_said_and_then_forgotten(tree, start, state):
    pod = tree.pod(A)
    agent = start()
    agent.tick(1.0)
    agent.tell(SetPoints(epoch=1, pods=[point(A, 0.3)]), 1.0)
    agent.tick(2.0)
    tree.remove(pod)
    last = agent.tick(3.0).pods[0]
    assert (last.cap, last.cpu_seconds) == (None, 1.5)
    assert agent.tick(2.0 + FORGET_AFTER).pods
    assert agent.tick(2.1 + FORGET_AFTER).pods == []
    assert state.load().modes == {}
    assert value(agent, "punctual_cgroup_writes_total", result="vanished") == 1
    assert value(agent, "punctual_cpu_quota_cores", uid=A) is None


def test_what_was_read_just_before_the_files_went_is_the_last_word(tree, start):
    tree.pod(A)
    file = tree.volume(A) / "end"
    agent = start()
    agent.tick(1.0)
    file.write_text("7")
    assert not agent.tick(2.0).pods[0].over
    shutil.rmtree(tree.volume_of(A))
    assert [(p.end, p.over) for p in agent.tick(3.0).pods] == [(7, True)]
    assert agent.tick(30.0).pods[0].over, "a report may be lost"


def test_what_was_read_too_long_before_the_files_went_is_not_the_last_word(tree, start):
    tree.pod(A)
    tree.volume(A)
    agent = start()
    agent.tick(1.0)
    shutil.rmtree(tree.volume_of(A))
    assert [p.over for now in (3.5, 4.5) for p in agent.tick(now).pods] == [False, False]


def test_a_pod_whose_files_were_never_seen_has_no_last_word(tree, start):
    tree.pod(A)
    agent = start()
    agent.tell(SetPoints(epoch=1, pods=[point(A, 0.3)]), 1.0)
    assert [p.over for now in (1.5, 2.5) for p in agent.tick(now).pods] == [False, False]


def test_progress_beyond_the_chunk_is_a_fault_once_its_length_is_known(tree, start):
    tree.pod(A)
    file = tree.volume(A) / "progress"
    file.write_text("5")
    agent = start()
    agent.tick(1.0)
    agent.tell(SetPoints(epoch=1, pods=[point(A, 0.3, units=10)]), 1.0)
    file.write_text("11")
    pod = agent.tick(2.0).pods[0]
    assert (pod.done, pod.faults) == (5, {"progress": {"beyondEnd": 1}})
    assert value(agent, "punctual_file_faults_total", kind="beyondEnd") == 1


def test_the_report_tells_how_long_ago_progress_was_written(tree, start):
    tree.pod(A)
    file = tree.volume(A) / "progress"
    agent = start()
    agent._wall = lambda: 1_700_000_100.0
    file.write_text("5")
    os.utime(file, ns=(0, 1_700_000_099_375_000_000))
    assert agent.tick(100.0).pods[0].written == pytest.approx(0.625)
    file.unlink()
    agent._wall = lambda: 1_700_000_101.0
    assert agent.tick(101.0).pods[0].written == pytest.approx(1.625)


def test_a_uid_that_is_none_is_left_out(tree, start):
    agent = start()
    assert agent.tell(SetPoints(epoch=1, pods=[point("../../etc", 0.3)]), 1.0)
    assert agent.tick(2.0).pods == []


def test_without_a_pods_folder_caps_are_held_all_the_same(tree, start):
    tree.pod(A)
    tree.pods.rmdir()
    agent = start()
    agent.tell(SetPoints(epoch=1, pods=[point(A, 0.3)]), 1.0)
    assert agent.tick(2.0).pods[0].cap == 0.3


def test_the_metrics_tell_the_caps_and_when_the_last_answer_came(tree, start, monkeypatch):
    monkeypatch.setattr(punctual_agent.metrics.time, "time", lambda: 1000.0)
    tree.pod(A)
    agent = start()
    agent.tell(SetPoints(epoch=3, pods=[point(A, 0.3)]), 1.0)
    agent.tick(4.0)
    assert value(agent, "punctual_cpu_quota_cores", uid=A) == 0.3
    assert value(agent, "punctual_cpu_period_seconds", uid=A) == 0.1
    assert value(agent, "punctual_agent_answered_timestamp_seconds") == 997.0
    assert value(agent, "punctual_agent_epoch") == 3
    assert value(agent, "punctual_agent_pods") == 1
    assert value(agent, "punctual_agent_may_write") == 1
    assert value(agent, "punctual_cgroup_writes_total", result="written") >= 2


THROTTLED = "punctual_cpu_throttled_seconds_total", "punctual_cpu_throttled_periods_total", "punctual_cpu_periods_total"


def throttled(agent):
    """Return what the node's counters of throttling say: seconds, throttled periods, periods."""
    return tuple(value(agent, name) for name in THROTTLED)


def test_throttling_is_counted_over_pods_and_containers_that_come_and_go(tree, start):
    agent = start()
    agent.tick(0.5)
    assert throttled(agent) == (0, 0, 0)
    pod = tree.pod(A, containers=1)
    (container,) = (path for path in pod.iterdir() if path.is_dir())
    tree.volume(A)
    for folder in (pod, container):
        tree.count(folder, periods=10, throttled=3, seconds=0.5)
    agent.tick(1.0)
    assert throttled(agent) == (1.0, 3, 10)
    tree.count(container, periods=20, throttled=13, seconds=1.5)
    agent.tick(2.0)
    assert throttled(agent) == (2.0, 13, 20)
    tree.remove(container)
    agent.tick(3.0)
    assert throttled(agent) == (2.0, 13, 20), "a container that ended takes nothing back"
    tree.count(pod, periods=15, throttled=4, seconds=0.75)
    agent.tick(4.0)
    assert throttled(agent) == (2.25, 14, 25)
    tree.remove(pod)
    other = tree.pod(B, containers=0)
    tree.volume(B)
    tree.count(other, periods=2, throttled=1, seconds=0.25)
    agent.tick(5.0)
    assert throttled(agent) == (2.5, 15, 27)


def test_a_restarted_agent_does_not_count_again_what_was_before_it(tree, start):
    pod = tree.pod(A, containers=0)
    tree.volume(A)
    tree.count(pod, periods=10, throttled=3, seconds=0.5)
    agent = start()
    agent.tick(1.0)
    assert throttled(agent) == (0, 0, 0)
    tree.count(pod, periods=12, throttled=4, seconds=0.75)
    agent.tick(2.0)
    assert throttled(agent) == (0.25, 1, 2)


def test_pressure_is_counted_from_the_agents_start_and_not_exported_without_psi(tree, start, monkeypatch):
    name, total = "punctual_node_cpu_pressure_seconds_total", [None]
    monkeypatch.setattr(Hierarchy, "node", lambda _: NodeUse(0.0, None, total[0], 4.0))
    agent = start()
    agent.tick(1.0)
    assert value(agent, name) is None
    assert name not in generate_latest(agent._metrics.registry).decode()
    seen = []
    for now, total[0] in ((2.0, 100.0), (3.0, 100.5), (4.0, None), (5.0, 101.5)):
        agent.tick(now)
        seen.append(value(agent, name))
    assert seen == [0.0, 0.5, 0.5, 1.5]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, {"pod": Throttling(10, 10, 1.0)}, None),
        ({}, {"pod": Throttling(10, 10, 1.0)}, None),
        ({"pod": Throttling(10, 4, 1.0)}, {"pod": Throttling(10, 4, 1.0)}, None),
        ({"pod": Throttling(10, 4, 1.0)}, {"pod": Throttling(20, 9, 1.0)}, 0.5),
        ({"pod": Throttling(), "c": Throttling(10, 9, 1.0)}, {"pod": Throttling(), "c": Throttling(20, 19, 1.0)}, 1.0),
        ({"pod": Throttling(5, 5, 1.0)}, {"pod": Throttling(15, 5, 1.0), "new": Throttling(9, 9, 1.0)}, 0.0),
    ],
)
def test_the_part_of_the_periods_in_which_a_cap_was_used_up(before, now, expected):
    assert _bound(before, now) == expected
