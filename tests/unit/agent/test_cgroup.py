import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual_agent import cgroup
from punctual_agent.actuator import Actuator, NodeLock
from punctual_agent.cgroup import Cap, CgroupError, Hierarchy, NodeUse, Throttling, Use, VanishedError, _v1_steps

UID = "7a9e1f0c-3b2d-4c5e-8f70-112233445566"


@pytest.mark.parametrize("qos", ["", "burstable", "besteffort"])
def test_a_pod_is_found_in_every_class(tree, qos):
    folder = tree.pod(UID, qos=qos)
    assert tree.hierarchy().find(UID) == str(folder)
    assert tree.hierarchy().driver == tree.driver


@pytest.mark.parametrize(
    ("driver", "below"),
    [
        ("cgroupfs", "kubelet"),
        ("cgroupfs", "docker/2f3a/kubelet"),
        ("systemd", "kubelet.slice"),
        ("systemd", "system.slice/docker-2f3a.scope/kubelet.slice"),
    ],
)
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_pod_is_found_below_any_cgroup_root(make_tree, version, driver, below):
    tree = make_tree(version, driver, below=below)
    folder = tree.pod(UID)
    assert tree.hierarchy().find(UID) == str(folder)


def test_a_pod_that_comes_later_is_found_and_one_that_is_not_there_costs_one_search_in_ten_seconds(make_tree):
    tree = make_tree("v1", "cgroupfs")
    now = [100.0]
    hierarchy = tree.hierarchy(clock=lambda: now[0])
    assert hierarchy.find(UID) is None
    folder = tree.pod(UID)
    assert hierarchy.find(UID) == str(folder)  # the class's folder needs no new search
    other = tree.folder(tree.cpu / "second/kubepods/pod1234")
    assert hierarchy.find("1234") is None
    now[0] += 11
    assert hierarchy.find("1234") == str(other)


@pytest.mark.parametrize("uid", ["", "../../etc", "a/b", ".", "..", "x" * 64, "a\n", "ü"])
def test_what_is_no_uid_never_becomes_a_path(tree, uid):
    tree.pod(UID)
    assert tree.hierarchy().find(uid) is None


def test_without_a_cpu_hierarchy_it_says_so(tmp_path):
    with pytest.raises(CgroupError, match="neither a cgroup v2 hierarchy"):
        Hierarchy(str(tmp_path))


def test_the_joint_v1_controller_is_known(tmp_path):
    joint = tmp_path / "cpu,cpuacct"
    (joint / "kubepods/pod1").mkdir(parents=True)
    (joint / "cgroup.procs").write_text("")
    (joint / "cpuacct.usage").write_text("2000000000\n")
    (joint / "kubepods/pod1/cpuacct.usage").write_text("1000000000\n")
    (joint / "kubepods/pod1/cpu.stat").write_text("throttled_time 0\n")
    hierarchy = Hierarchy(str(tmp_path))
    assert hierarchy.use(hierarchy.find("1"), []) == Use(1.0, {str(joint / "kubepods/pod1"): Throttling()})
    assert hierarchy.node().cpu == 2.0


def test_counters_are_seconds_and_throttling_adds_up_over_pod_and_containers(tree):
    folder = tree.pod(UID, containers=2)
    hierarchy = tree.hierarchy()
    containers = hierarchy.containers(str(folder))
    use = hierarchy.use(str(folder), containers)
    assert use == Use(1.5, dict.fromkeys((str(folder), *containers), Throttling(4, 1, 0.25)))
    assert sum(one.seconds for one in use.folders.values()) == 0.75


def test_the_node_is_read_at_the_root(make_tree):
    node = make_tree("v2", "systemd").hierarchy().node()
    assert node == NodeUse(12.5, 7.5, 2.5, 4.0)


def test_the_node_is_read_at_the_root_on_v1(make_tree):
    node = make_tree("v1", "cgroupfs").hierarchy().node()
    assert node.cpu == 12.5


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("some avg10=99.01 avg60=1.00 avg300=0.00 total=1500000\n", (99.01, 1.5)),
        ("", (None, None)),
        (None, (None, None)),
        (OSError(95, "Operation not supported"), (None, None)),  # booted with psi=0
    ],
)
def test_on_v1_pressure_is_that_of_proc_and_none_without_psi(make_tree, monkeypatch, text, found):
    real = cgroup._read

    def read(path):
        if path != "/proc/pressure/cpu":
            return real(path)
        if isinstance(text, str):
            return text
        raise cgroup._translated(text or FileNotFoundError(2, "gone"), path)

    monkeypatch.setattr(cgroup, "_read", read)
    node = make_tree("v1", "cgroupfs").hierarchy().node()
    assert (node.pressure, node.waited) == found


@pytest.mark.parametrize(
    ("text", "cap"),
    [
        ("max 100000\n", Cap(None)),
        ("max\n", Cap(None)),
        ("50000 100000\n", Cap(50_000)),
        ("50000\n", Cap(50_000)),
        ("3000 20000", Cap(3_000, 20_000)),
    ],
)
def test_v2_caps_are_compared_as_numbers(make_tree, text, cap):
    tree = make_tree("v2")
    folder = tree.pod(UID)
    (folder / "cpu.max").write_text(text)
    assert tree.hierarchy().cap(str(folder)) == cap


@pytest.mark.parametrize(
    ("cores", "period", "cap"),
    [
        (0.3, 0.1, Cap(30_000, 100_000)),
        (2.5, 0.02, Cap(50_000, 20_000)),
        (0.1, 0.005, Cap(1_000, 10_000)),  # the kernel takes no quota below 1 ms: the period grows, the share stays
        (0.001, 0.1, Cap(1_000, 1_000_000)),
        (0.0, 0.1, Cap(1_000, 1_000_000)),
    ],
)
def test_a_cap_of_cores(cores, period, cap):
    assert Cap.of(cores, period) == cap


@given(cores=st.floats(0, 256), period=st.floats(0.001, 1.0))
def test_every_cap_is_one_the_kernel_takes(cores, period):
    cap = Cap.of(cores, period)
    assert cap.quota >= 1_000
    assert 1_000 <= cap.period <= 1_000_000
    if cores >= 0.001:
        assert cap.cores == pytest.approx(cores, rel=0.01)


caps = st.one_of(
    st.builds(Cap, st.integers(1_000, 400_000), st.integers(1_000, 1_000_000)),
    st.builds(Cap, st.none(), st.integers(1_000, 1_000_000)),
)


@given(there=caps, cap=caps)
def test_v1_writes_end_at_the_cap_and_none_is_outside_what_parent_and_child_allow(there, cap):
    now = there
    low, high = sorted((there.share, cap.share))
    for name, value in _v1_steps(there, cap):
        now = Cap(value if value >= 0 else None, now.period) if name == "quota" else Cap(now.quota, value)
        assert now.quota is None or low <= now.share <= high
    assert now == cap


class Recorded(Hierarchy):
    """Notes the order of writes."""

    def __init__(self, root):
        super().__init__(root)
        self.log = []

    def set_cap(self, folder, cap, *, there):
        self.log.append(Path(folder).name)
        super().set_cap(folder, cap, there=there)


def test_v2_widens_parent_first_and_narrows_child_first(make_tree):
    tree = make_tree("v2", "cgroupfs")
    pod = tree.pod(UID, quota=30_000)
    hierarchy = Recorded(str(tree.root))
    actuator = Actuator(hierarchy)
    actuator.hold(UID, Cap(60_000))
    assert hierarchy.log == [pod.name, "c0", "c1"]
    hierarchy.log.clear()
    actuator.hold(UID, Cap(20_000))
    assert hierarchy.log == ["c0", "c1", pod.name]


def test_v1_widens_the_pod_first_and_never_narrows_it(make_tree):
    tree = make_tree("v1", "cgroupfs")
    pod = tree.pod(UID, quota=30_000)
    hierarchy = Recorded(str(tree.root))
    actuator = Actuator(hierarchy)
    assert actuator.hold(UID, Cap(60_000)).cap == Cap(60_000)
    assert hierarchy.log == [pod.name, "c0", "c1"]
    hierarchy.log.clear()
    assert actuator.hold(UID, Cap(20_000)).cap == Cap(20_000)
    assert hierarchy.log == ["c0", "c1"]
    assert tree.cap(pod) == Cap(60_000)


def test_a_cap_that_is_there_is_not_written_again(tree):
    tree.pod(UID)
    actuator = Actuator(tree.hierarchy())
    assert actuator.hold(UID, Cap.of(0.4, 0.02)).writes["written"] >= 2
    assert actuator.hold(UID, Cap.of(0.4, 0.02)).writes == {}


def test_what_else_writes_is_seen_as_drift_and_what_we_write_is_not(tree):
    pod = tree.pod(UID)
    container = next(path for path in pod.iterdir() if path.is_dir())
    actuator = Actuator(tree.hierarchy())
    assert [actuator.hold(UID, Cap.of(c, 0.02)).drift for c in (0.4, 0.4, 0.2, 0.6)] == [0, 0, 0, 0]
    tree.folder(container)  # as a daemon-reload leaves it
    held = actuator.hold(UID, Cap.of(0.6, 0.02))
    assert (held.drift, held.writes["written"], tree.cap(container)) == (1, 1, Cap.of(0.6, 0.02))


def test_a_drift_that_comes_with_a_new_cap_is_counted_too(tree):
    pod = tree.pod(UID)
    container = next(path for path in pod.iterdir() if path.is_dir())
    actuator = Actuator(tree.hierarchy())
    actuator.hold(UID, Cap(40_000))
    tree.folder(container, quota=90_000)
    assert actuator.hold(UID, Cap(50_000)).drift == 1


def test_looking_only_writes_nothing(tree):
    pod = tree.pod(UID, quota=30_000)
    held = Actuator(tree.hierarchy()).hold(UID, None)
    assert (held.found, held.cap, held.writes) == (True, Cap(30_000), {})
    assert tree.cap(pod) == Cap(30_000)


def test_burst_goes_to_nothing_before_the_quota(tree):
    pod = tree.pod(UID, quota=90_000)
    name = "cpu.max.burst" if tree.version == "v2" else "cpu.cfs_burst_us"
    container = next(path for path in pod.iterdir() if path.is_dir())
    (container / name).write_text("50000\n")
    Actuator(tree.hierarchy()).hold(UID, Cap(20_000))
    assert (container / name).read_text() == "0"


def test_a_kernel_without_burst_is_fine(tree):
    pod = tree.pod(UID)
    for file in pod.rglob("*burst*"):
        file.unlink()
    held = Actuator(tree.hierarchy()).hold(UID, Cap(20_000))
    assert (held.error, held.cap) == (None, Cap(20_000))


def test_a_vanished_pod_is_counted_and_no_error(tree):
    pod = tree.pod(UID)
    actuator = Actuator(tree.hierarchy())
    actuator.hold(UID, Cap(20_000))
    tree.remove(pod)
    held = actuator.hold(UID, Cap(20_000))
    assert (held.found, held.writes, held.error) == (False, {"vanished": 1}, None)
    held = actuator.hold(UID, Cap(20_000))
    assert (held.found, held.writes) == (False, {})


def test_a_refused_write_is_told_and_the_rest_goes_on(make_tree, monkeypatch):
    tree = make_tree("v2", "cgroupfs")
    pod = tree.pod(UID)
    real = os.write

    def refusing(handle, data):
        if str(Path(f"/proc/self/fd/{handle}").readlink()).endswith("/c0/cpu.max"):
            raise OSError(22, "Invalid argument")
        return real(handle, data)

    monkeypatch.setattr(os, "write", refusing)
    held = Actuator(tree.hierarchy()).hold(UID, Cap(20_000))
    assert held.writes == {"refused": 1, "written": 2}
    assert "c0/cpu.max <- 20000 100000" in held.error
    assert tree.cap(pod) == Cap(20_000)


@pytest.mark.parametrize(("number", "kind"), [(22, "refused"), (13, "denied"), (30, "denied"), (5, "failed")])
def test_errors_are_told_apart(make_tree, monkeypatch, number, kind):
    tree = make_tree("v2")
    folder = str(tree.pod(UID))

    def failing(*_):
        raise OSError(number, "x")

    monkeypatch.setattr(os, "write", failing)
    with pytest.raises(CgroupError) as caught:
        tree.hierarchy().set_cap(folder, Cap(20_000), there=Cap(None))
    assert caught.value.kind == kind


def test_a_folder_that_is_gone_is_its_own_class(tree):
    with pytest.raises(VanishedError):
        tree.hierarchy().cap(str(tree.base / "podx"))


def test_one_process_at_a_time_holds_the_node(tree):
    first, second = NodeLock(tree.hierarchy()), NodeLock(tree.hierarchy())
    assert first.take()
    assert first.take()
    assert not second.take()
    with second.once() as mine:
        assert not mine
    first.release()
    with second.once() as mine:
        assert mine
        assert not first.take()
    assert first.take()
    first.release()
