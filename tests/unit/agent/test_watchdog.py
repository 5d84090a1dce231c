"""What is left when the agent is gone: stories with a clock that the test moves."""

import json
import os
import queue
import subprocess
import sys

import pytest

from punctual_agent import watchdog
from punctual_agent.actuator import Actuator, NodeLock
from punctual_agent.cgroup import Cap
from punctual_agent.modes.guest import GuestMode
from punctual_agent.modes.hold import HoldMode
from punctual_agent.state import Saved, State
from punctual_agent.watchdog import Watchdog

CHUNK, GUEST = "c" * 8, "d" * 8
MODES = {CHUNK: HoldMode(0.9, 0.1), GUEST: GuestMode(0.01, 0.1, 7)}
TOLD = Cap.of(0.3, 0.1)


@pytest.fixture
def state(tmp_path):
    (tmp_path / "state").mkdir()
    return State(tmp_path / "state")


@pytest.fixture
def node(tree, state):
    for uid in (CHUNK, GUEST):
        tree.pod(uid, containers=1)
        Actuator(tree.hierarchy()).hold(uid, TOLD)
    state.save(Saved(7, 5.0, MODES))
    return tree


def caps(tree):
    actuator = Actuator(tree.hierarchy())
    return [actuator.hold(uid, None).cap for uid in (CHUNK, GUEST)]


AT_REST = [Cap.of(0.9, 0.1), Cap.of(0.01, 0.1)]


def test_story_of_an_agent_that_lives_dies_and_comes_back(node, state):
    dog = Watchdog(node.hierarchy(), state)
    log = []

    def step(now):
        rested = dog.step(now)
        log.append((now, sorted(rested) if rested is not None else None, caps(node) == AT_REST))

    state.beat(100.0)
    step(101.0)
    step(105.0)
    step(105.1)  # the lease is over
    step(106.1)
    for uid in (CHUNK, GUEST):  # the agent is back
        Actuator(node.hierarchy()).hold(uid, TOLD)
    state.beat(107.0)
    step(107.1)
    assert log == [
        (101.0, None, False),
        (105.0, None, False),
        (105.1, [CHUNK, GUEST], True),
        (106.1, [CHUNK, GUEST], True),
        (107.1, None, False),
    ]


def test_what_something_else_writes_meanwhile_is_put_to_rest_again(node, state):
    dog = Watchdog(node.hierarchy(), state)
    state.beat(100.0)
    dog.step(110.0)
    Actuator(node.hierarchy()).hold(CHUNK, TOLD)
    assert caps(node) != AT_REST
    dog.step(111.0)
    assert caps(node) == AT_REST


def test_it_never_writes_while_another_agent_holds_the_node(node, state):
    dog = Watchdog(node.hierarchy(), state)
    other = NodeLock(node.hierarchy())
    assert other.take()
    state.beat(100.0)
    assert dog.step(110.0) is None
    assert caps(node) == [TOLD, TOLD]
    other.release()  # as the kernel does when its holder is killed
    assert set(dog.step(111.0)) == {CHUNK, GUEST}
    assert other.take()  # and it keeps nothing
    other.release()


def test_an_agent_that_never_began_or_ended_in_order_is_not_mourned(node, state):
    dog = Watchdog(node.hierarchy(), state)
    assert dog.step(100.0) is None
    state.beat(100.0)
    state.end()
    assert dog.step(200.0) is None
    assert caps(node) == [TOLD, TOLD]


def test_a_heartbeat_of_an_earlier_boot_is_old(node, state):
    state.beat(99_999.0)
    assert set(Watchdog(node.hierarchy(), state).step(20.0)) == {CHUNK, GUEST}


def test_pods_that_are_gone_do_not_keep_it_from_the_others(node, state):
    node.remove(node.pod_folder(CHUNK))
    state.beat(100.0)
    assert set(Watchdog(node.hierarchy(), state).step(110.0)) == {GUEST}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"epoch": 1}', '{"epoch": 1, "lease": 5, "modes": {"a": 3}}'])
def test_a_state_file_that_makes_no_sense_moves_nothing(node, state, tmp_path, text):
    (tmp_path / "state/state.json").write_text(text)
    state.beat(100.0)
    assert Watchdog(node.hierarchy(), state).step(110.0) == {}
    assert caps(node) == [TOLD, TOLD]


def test_a_uid_in_the_state_file_that_is_none_is_left_out(state, tmp_path):
    modes = {uid: {"kind": "Hold", "rest_cores": 1, "period": 0.1} for uid in ("../../x", CHUNK)}
    (tmp_path / "state/state.json").write_text(json.dumps({"epoch": 1, "lease": 5, "modes": modes}))
    assert state.load() == Saved(1, 5.0, {CHUNK: HoldMode(1.0, 0.1)})


def test_state_comes_back_as_it_was_saved(state):
    saved = Saved(7, 5.0, MODES)
    state.save(saved)
    assert state.load() == saved
    state.beat(12.25)
    assert state.heartbeat() == 12.25


def test_told_to_end_it_waits_until_the_agent_is_gone(node, state, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(watchdog.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    state.beat(100.0)
    told = queue.SimpleQueue()
    told.put(None)
    Watchdog(node.hierarchy(), state).watch(told, clock=lambda: now[0])
    assert caps(node) == AT_REST
    assert 105.0 < now[0] <= 107.0


def test_told_to_end_it_ends_though_the_agent_lives_on(node, state, monkeypatch):
    now = [100.0]

    def sleep(seconds):
        now[0] += seconds
        state.beat(now[0])

    monkeypatch.setattr(watchdog.time, "sleep", sleep)
    state.beat(100.0)
    told = queue.SimpleQueue()
    told.put(None)
    Watchdog(node.hierarchy(), state).watch(told, clock=lambda: now[0])
    assert caps(node) == [TOLD, TOLD]
    assert now[0] == pytest.approx(100 + watchdog.LAST_WATCH, abs=1.1)


_BUSY = """
from punctual_agent import watchdog

def step(self, now, steps=[]):
    steps.append(now)
    if len(steps) == 1000:
        print("watches", flush=True)

watchdog.EVERY, watchdog.Watchdog.step = 0.0, step
raise SystemExit(watchdog.main())
"""


def test_it_hears_a_signal_in_whatever_it_is_doing(node, tmp_path):
    """A lock that a handler waits for, held by the thread that it has interrupted: it never ended, once in a while."""
    environ = {**os.environ, "CGROUP_ROOT": str(node.root), "STATE_DIR": str(tmp_path / "empty")}
    for _ in range(10):
        with subprocess.Popen([sys.executable, "-c", _BUSY], env=environ, stdout=subprocess.PIPE) as one:
            assert one.stdout.readline()
            one.terminate()
            try:
                assert one.wait(120) == 0
            finally:
                one.kill()


def test_without_a_hierarchy_it_says_so(tmp_path, capsys):
    assert watchdog.main({"CGROUP_ROOT": str(tmp_path)}) == 1
    assert "neither a cgroup v2 hierarchy" in capsys.readouterr().err
