"""Applications held at a rate: never above their limits, kept whoever is away, and their limits given back exactly."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.wire import ApplicationOrder, SetPoint, SetPoints
from punctual_agent.cgroup import Cap, Hierarchy
from punctual_agent.modes.application import ApplicationMode, Folder
from punctual_agent.state import Saved, State
from punctual_agent.watchdog import Watchdog

A, CHUNK = "a" * 8, "c" * 8
NONE = Cap(None)


@pytest.fixture
def state(tmp_path):
    (tmp_path / "state").mkdir()
    return State(tmp_path / "state")


@pytest.fixture
def start(tree, state):
    made = []

    def start(now=0.0, state=state):
        for one in made:
            one._lock.release()  # what the kernel does when the process is killed
        made.append(tree.agent(state, now))
        return made[-1]

    yield start
    made[-1]._lock.release()


def held(*points, complete=True, epoch=1):
    """An answer that holds pods at (cap, period)."""
    order = ApplicationOrder()
    pods = [SetPoint(uid=uid, cap=cap, rest_cap=cap, period=period, mode=order) for uid, cap, period in points]
    return SetPoints(epoch=epoch, pods=pods, applications_complete=complete)


def folders(tree, pod):
    """The caps of a pod's folder and of its containers."""
    inner = sorted(path for path in pod.iterdir() if path.is_dir())
    return [tree.cap(folder) for folder in (pod, *inner)]


def narrowed(tree, cap, limit):
    """What the pod's own folder has while its containers have the cap: on v1 it is never narrowed."""
    return limit if tree.version == "v1" else cap


def test_story_of_an_application_that_is_held_and_let_go(tree, start):
    pod = tree.pod(A, quota=150_000)
    agent = start()
    limit, pair, other = Cap(150_000), Cap.of(0.4, 0.02), Cap.of(0.5, 0.05)
    assert agent.tell(held((A, 0.4, 0.02)), 1.0)
    assert folders(tree, pod) == [narrowed(tree, pair, limit), pair, pair]
    (report,) = agent.tick(2.0).pods
    assert agent._metrics.registry.get_sample_value("punctual_agent_applications") == 1
    assert (report.cap, report.period, report.drift) == (0.4, 0.02, 0)
    agent.tell(held((A, 0.5, 0.05)), 2.0)
    assert folders(tree, pod) == [narrowed(tree, other, limit), other, other]
    agent.tell(held(complete=False, epoch=2), 3.0)  # a new leader that has not read all applications yet
    agent.tick(4.0)
    assert folders(tree, pod)[1] == other
    assert not agent.tell(held(epoch=1), 4.0)  # the old leader
    assert folders(tree, pod)[1] == other
    agent.tell(held(epoch=2), 5.0)
    assert folders(tree, pod) == [limit, limit, limit]
    tree.folder(pod, quota=70_000)
    agent.tick(6.0)
    assert folders(tree, pod)[0] == Cap(70_000), "let go: the agent writes there no more"


def test_a_folder_without_a_limit_has_none_afterwards_and_its_period_is_its_own_again(tree, start):
    pod = tree.pod(A)
    tree.folder(pod, quota=-1, period=50_000)
    agent = start()
    agent.tell(held((A, 0.4, 0.02)), 1.0)
    assert folders(tree, pod)[1:] == [Cap.of(0.4, 0.02)] * 2
    agent.tell(held(), 2.0)
    assert folders(tree, pod) == [Cap(None, 50_000), NONE, NONE]


def test_a_folder_keeps_a_limit_below_the_cap(tree, start):
    pod = tree.pod(A, quota=80_000)
    small = next(path for path in sorted(pod.iterdir()) if path.is_dir())
    tree.folder(small, quota=10_000)
    agent = start()
    agent.tell(held((A, 0.5, 0.02)), 1.0)
    assert folders(tree, pod)[1:] == [Cap(10_000), Cap.of(0.5, 0.02)]
    agent.tell(held((A, 3.0, 0.02)), 2.0)
    assert folders(tree, pod) == [Cap(80_000), Cap(10_000), Cap(80_000)]


def test_a_container_that_starts_later_is_held_and_gets_its_own_limit_back(tree, start):
    pod = tree.pod(A, quota=90_000, containers=1)
    agent = start()
    agent.tell(held((A, 0.3, 0.02)), 1.0)
    late = tree.folder(pod / "late", quota=60_000)
    report = agent.tick(2.0).pods[0]
    assert (tree.cap(late), report.drift) == (Cap.of(0.3, 0.02), 0)
    agent.tell(held(), 3.0)
    assert tree.cap(late) == Cap(60_000)


def test_a_pod_that_comes_after_its_set_point_is_held_from_the_next_look_on(tree, start):
    agent = start()
    agent.tell(held((A, 0.3, 0.02)), 1.0)
    pod = tree.pod(A, quota=90_000)
    agent.tick(2.0)
    assert folders(tree, pod)[1] == Cap.of(0.3, 0.02)
    agent.tell(held(), 3.0)
    assert folders(tree, pod)[1] == Cap(90_000)


def test_what_another_program_widens_is_held_again_and_is_the_limit_afterwards(tree, start):
    pod = tree.pod(A, quota=90_000, containers=1)
    container = next(path for path in pod.iterdir() if path.is_dir())
    agent = start()
    agent.tell(held((A, 0.3, 0.02)), 1.0)
    tree.folder(pod, quota=200_000)
    tree.folder(container, quota=200_000)
    assert agent.tick(2.0).pods[0].drift == (1 if tree.version == "v1" else 2)  # on v1 the pod's folder is not ours
    assert tree.cap(container) == Cap.of(0.3, 0.02)
    assert agent.tick(3.0).pods[0].drift == (1 if tree.version == "v1" else 2), "counted once"
    agent.tell(held(), 4.0)
    assert folders(tree, pod) == [Cap(200_000), Cap(200_000)]


def test_a_limit_that_another_program_sets_below_the_cap_is_obeyed_until_it_is_changed(tree, start):
    pod = tree.pod(A, quota=90_000, containers=1)
    container = next(path for path in pod.iterdir() if path.is_dir())
    agent = start()
    agent.tell(held((A, 0.5, 0.02)), 1.0)
    tree.folder(container, quota=20_000)
    report = agent.tick(2.0).pods[0]
    assert (tree.cap(container), report.drift, report.cap) == (Cap(20_000), 1, 0.2)
    agent.tell(held((A, 0.6, 0.02)), 2.0)
    assert tree.cap(container) == Cap(20_000)
    agent.tell(held((A, 0.1, 0.02)), 3.0)
    assert tree.cap(container) == Cap.of(0.1, 0.02)
    agent.tell(held((A, 0.5, 0.02)), 4.0)
    assert tree.cap(container) == Cap(20_000)
    tree.folder(container, quota=300_000)  # the kubelet gives it more
    agent.tick(5.0)
    assert tree.cap(container) == Cap.of(0.5, 0.02)
    agent.tell(held(), 6.0)
    assert tree.cap(container) == Cap(300_000)


def test_while_operator_agent_or_both_are_away_the_last_pair_stays(tree, start, state):
    pod, pair = tree.pod(A, quota=90_000), Cap.of(0.3, 0.02)
    chunk = tree.pod(CHUNK)
    agent = start()
    both = held((A, 0.3, 0.02))
    chunks = [SetPoint(uid=CHUNK, cap=0.2, rest_cap=0.7)]
    agent.tell(SetPoints(epoch=1, pods=[*both.pods, *chunks], applications_complete=True), 1.0)
    agent.tick(700.0)
    assert (folders(tree, pod)[1], folders(tree, chunk)[1]) == (pair, Cap.of(0.7, 0.1))
    agent._lock.release()  # killed
    dog = Watchdog(tree.hierarchy(), state)
    assert list(dog.step(800.0)) == [CHUNK]
    assert folders(tree, pod)[1] == pair
    again = start(now=900.0)
    tree.folder(pod / min(path.name for path in pod.iterdir() if path.is_dir()), quota=90_000)
    again.tick(900.0)
    assert folders(tree, pod)[1] == pair
    again.rest()
    assert folders(tree, pod)[1] == pair


def test_a_restarted_agent_knows_the_limits(tree, start):
    pod = tree.pod(A, quota=90_000)
    start().tell(held((A, 0.3, 0.02)), 1.0)
    again = start(now=10.0)
    assert again.tick(10.0).pods[0].drift == 0
    again.tell(held((A, 0.4, 0.02), epoch=2), 11.0)
    assert folders(tree, pod)[1] == Cap.of(0.4, 0.02)
    third = start(now=20.0)
    third.tell(held(epoch=3), 20.0)
    assert folders(tree, pod) == [Cap(90_000)] * 3
    third.tick(21.0)
    assert start(now=30.0)._saved.modes == {}


def test_limits_are_saved_before_a_cap_is_written(tree, start, state, monkeypatch):
    tree.pod(A, quota=90_000)
    agent = start()
    seen = []
    real = Hierarchy.set_cap

    def noting(self, folder, cap, *, there):
        seen.append((cap, state.load().modes[A]))
        real(self, folder, cap, there=there)

    monkeypatch.setattr(Hierarchy, "set_cap", noting)
    for now, cap in ((1.0, 0.3), (2.0, 0.4)):
        agent.tell(held((A, cap, 0.02)), now)
    assert seen
    for cap, saved in seen:
        assert saved.cap == cap
        assert {one.limit for one in saved.folders.values()} == {Cap(90_000)}


def test_without_what_was_saved_an_application_never_has_more_than_before(tree, start, tmp_path):
    pod = tree.pod(A, quota=90_000)
    start().tell(held((A, 0.3, 0.02)), 1.0)
    (tmp_path / "other").mkdir()
    other = start(now=10.0, state=State(tmp_path / "other"))
    other.tell(held((A, 0.5, 0.02)), 10.0)
    assert folders(tree, pod)[1] == Cap.of(0.3, 0.02)
    other.tell(held((A, 0.2, 0.02)), 11.0)
    assert folders(tree, pod)[1] == Cap.of(0.2, 0.02)
    other.tell(held(), 12.0)
    assert folders(tree, pod)[1] == Cap.of(0.3, 0.02)


def test_the_caps_of_an_agent_that_still_writes_are_no_limits(tree, start, tmp_path):
    pod = tree.pod(A, quota=90_000)
    (tmp_path / "other").mkdir()
    first = start()
    first.tell(held((A, 0.3, 0.02)), 1.0)
    second = tree.agent(State(tmp_path / "other"), 1.0)
    second.tell(held((A, 0.3, 0.02)), 1.0)
    first.tell(held((A, 0.2, 0.02)), 2.0)
    assert second.tick(2.0).pods[0].drift == 0
    first.tell(held(), 3.0)
    first._lock.release()
    second.tick(4.0)
    assert folders(tree, pod)[1] == Cap.of(0.3, 0.02)
    second.tell(held(), 5.0)
    assert folders(tree, pod) == [Cap(90_000)] * 3
    second._lock.release()


def test_a_write_that_was_refused_is_tried_again_and_leaves_the_limit_known(tree, start, monkeypatch):
    pod = tree.pod(A, quota=90_000)
    agent = start()
    real, broken = Hierarchy.set_cap, [True]

    def sometimes(self, folder, cap, *, there):
        if broken:
            raise cgroup_error()
        real(self, folder, cap, there=there)

    monkeypatch.setattr(Hierarchy, "set_cap", sometimes)
    agent.tell(held((A, 0.3, 0.02)), 1.0)
    assert folders(tree, pod)[1] == Cap(90_000)
    broken.clear()
    agent.tick(2.0)
    assert folders(tree, pod)[1] == Cap.of(0.3, 0.02)
    broken.append(True)
    agent.tell(held(), 3.0)
    assert folders(tree, pod)[1] == Cap.of(0.3, 0.02)
    broken.clear()
    agent.tick(4.0)
    assert folders(tree, pod) == [Cap(90_000)] * 3


def cgroup_error():
    from punctual_agent.cgroup import CgroupError

    return CgroupError("no", "refused")


def test_a_pod_that_ends_is_forgotten(tree, start, state):
    pod = tree.pod(A, quota=90_000)
    agent = start()
    agent.tell(held((A, 0.3, 0.02)), 1.0)
    tree.remove(pod)
    agent.tick(2.0)
    agent.tick(100.0)
    assert state.load().modes == {}


def test_applications_come_back_as_they_were_saved(state):
    one = ApplicationMode(
        Cap(3_000, 10_000),
        {"": Folder(NONE, NONE, (Cap(3_000, 10_000),)), "/c": Folder(Cap(5_000), Cap(5_000), (Cap(5_000),))},
    )
    state.save(Saved(1, 5.0, {A: one, "../x": one, CHUNK: ApplicationMode(None)}))
    assert state.load().modes == {A: one, CHUNK: ApplicationMode(None)}


@pytest.mark.parametrize("broken", [{"cap": 3}, {"folders": 3}, {"folders": {"": {"limit": None}}}])
def test_applications_that_make_no_sense_are_none(state, tmp_path, broken):
    application = {"kind": "Application", "cap": None, "folders": {}, "aligned": False, "raised": None}
    for mode, found in ((application, 1), (application | broken, 0)):
        (tmp_path / "state/applications.json").write_text(json.dumps({"boot": state._boot, "modes": {A: mode}}))
        assert len(state.load().modes) == found


CAPS = st.builds(Cap, st.none() | st.integers(1, 40).map(lambda n: 5_000 * n), st.sampled_from([20_000, 100_000]))
HELD = CAPS.filter(lambda cap: cap.quota is not None)
STEPS = st.lists(
    st.tuples(st.just("told"), HELD, st.integers(0, 3))
    | st.tuples(st.just("looks"), st.none(), st.integers(0, 3))
    | st.tuples(st.just("meddled"), CAPS, st.none()),
    max_size=25,
)


@given(limit=CAPS, steps=STEPS)
@settings(max_examples=300, deadline=None)
def test_however_the_agent_ends_its_own_caps_are_never_taken_for_limits(limit, steps):
    """Another program's last word is what each of three folders may have, and what it has in the end."""
    there = dict.fromkeys(("", "/a", "/b"), limit)
    limits = dict(there)
    one = ApplicationMode(None)

    def second(one, writes):
        """See, save, write; with fewer than three writes the process is killed, and what was saved is left."""
        one, _ = saved = one.seen(there)
        for name in list(there)[:writes]:
            there[name] = one.folders[name].coming[0]
            one = one.wrote({name: there[name]})
            assert there[name].share <= limits[name].share
        return one if writes == 3 else saved[0]

    for what, cap, writes in steps:
        if what == "meddled":
            known = one.folders.get("/a")
            if known is None or cap not in (
                known.there,
                *known.coming,
            ):  # what it may have written itself, it cannot tell
                there["/a"] = limits["/a"] = cap
        else:
            one = second(one.told(cap) if what == "told" else one, writes)
    one = second(one.told(None), 3)
    assert there == limits
    assert one.released
