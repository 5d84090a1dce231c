"""Which jobs share a node now, which wait, and which make way: tables."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.scheduling.admission.fluid import FluidJob, FluidNode, Start, arrange
from punctual.scheduling.model.node_rules import Eligible
from punctual.scheduling.model.timing import NOTICE

ONE = [FluidNode(name="n1", processors=1, pods=4)]
TWO = [*ONE, FluidNode(name="n2", processors=1, pods=4)]


def fluid(uid: str, work: float, due: float, node: str | None = None, **more) -> FluidJob:
    return FluidJob(uid=uid, work=work, due=due, setup=more.pop("setup", 0.0), node=node, **more)


@pytest.mark.parametrize(
    ("nodes", "jobs", "kept", "starts"),
    [
        pytest.param(ONE, [], True, {}, id="nothing"),
        pytest.param(ONE, [fluid("a", 50, 100)], True, {"a": ("n1", 0)}, id="one starts at once"),
        pytest.param(ONE, [fluid("a", 110, 100)], False, {}, id="more than a processor"),
        pytest.param(ONE, [fluid("a", 95, 100, setup=10)], False, {}, id="set-up takes time"),
        pytest.param(
            ONE, [fluid("a", 60, 100, "n1"), fluid("b", 40, 100)], True, {"b": ("n1", 0)}, id="two fit exactly"
        ),
        pytest.param(ONE, [fluid("a", 60, 100, "n1"), fluid("b", 41, 100)], False, {}, id="two do not fit"),
        pytest.param(
            ONE, [fluid("a", 60, 100, "n1"), fluid("b", 41, 200)], True, {"b": ("n1", 0)}, id="half as fast fits"
        ),
        pytest.param(
            ONE, [fluid("a", 90, 100, "n1"), fluid("b", 80, 200)], True, {"b": ("n1", 100)}, id="one waits for CPU"
        ),
        pytest.param(TWO, [fluid("a", 60, 100, "n1"), fluid("b", 60, 100)], True, {"b": ("n2", 0)}, id="another node"),
        pytest.param(
            TWO,
            [fluid("a", 60, 100, "n1"), fluid("b", 30, 100)],
            True,
            {"b": ("n1", 0)},
            id="the node with the least to spare",
        ),
        pytest.param(
            [replace(ONE[0], pods=1)],
            [fluid("a", 50, 100, "n1"), fluid("b", 50, 200)],
            True,
            {"b": ("n1", 100)},
            id="one waits for memory",
        ),
        pytest.param([replace(ONE[0], speed=2.0)], [fluid("a", 60, 100)], False, {}, id="a node that is half as fast"),
        pytest.param(ONE, [fluid("a", 50, 100, "gone")], True, {"a": ("n1", 0)}, id="its node is gone"),
        pytest.param(ONE, [fluid("a", 50, 100, not_before=20)], True, {"a": ("n1", 20)}, id="its pods are refused"),
        pytest.param(ONE, [fluid("a", 50, 100, not_before=60)], False, {}, id="its pods are refused for too long"),
        pytest.param([], [fluid("a", 50, 100)], False, {}, id="no node"),
        pytest.param(
            [TWO[0], replace(TWO[1], speed=4.0)],
            [fluid("a", 90, 100, "n1"), fluid("b", 30, 150), fluid("c", 80, 190)],
            True,
            {"b": ("n2", 0), "c": ("n1", 100)},
            id="too much for the slow node",
        ),
        pytest.param(
            [TWO[0], replace(TWO[1], closed=True)],
            [fluid("a", 90, 100, "n1"), fluid("b", 40, 150), fluid("c", 80, 190, eligible=Eligible(frozenset({"n2"})))],
            True,
            {"b": ("n1", 100), "c": ("n2", 0)},
            id="one node is for a job that names it",
        ),
        pytest.param(ONE, [fluid("a", 50, 40, "n1")], False, {}, id="a running job that is late"),
    ],
)
def test_who_starts_when(nodes, jobs, kept, starts):
    found = arrange(0.0, nodes, jobs)
    assert found.kept == kept
    if kept:
        assert found.starts == {uid: Start(node, at) for uid, (node, at) in starts.items()}
        assert not found.overtaken


FULL = [replace(ONE[0], pods=2)]


@pytest.mark.parametrize(
    ("jobs", "overtaken"),
    [
        pytest.param(
            [fluid("a", 50, 1000, "n1", resumes=True), fluid("b", 50, 2000, "n1", resumes=True)], {"b"}, id="most slack"
        ),
        pytest.param(
            [fluid("a", 50, 1000, "n1", resumes=True), fluid("b", 50, 2000, "n1")], {"a"}, id="only one resumes"
        ),
        pytest.param([fluid("a", 50, 1000, "n1"), fluid("b", 50, 2000, "n1")], None, id="none resumes"),
        pytest.param(
            [fluid("a", 50, 60, "n1", resumes=True), fluid("b", 2, 100, "n1", resumes=True)],
            {"b"},
            id="shorter",
        ),
        pytest.param(
            [fluid("a", 50, 60, "n1", resumes=True), fluid("b", 5, 50, "n1", resumes=True)], None, id="both are urgent"
        ),
    ],
)
def test_who_makes_way_for_an_urgent_job(jobs, overtaken):
    urgent = fluid("urgent", 5, 50.0)
    found = arrange(0.0, FULL, [*jobs, urgent])
    assert found.kept == (overtaken is not None)
    assert found.overtaken == (overtaken or set())
    if overtaken:
        assert found.starts["urgent"].at == NOTICE


jobs_of_any_kind = st.lists(
    st.builds(
        lambda work, due, setup, resumes, node: (work, due, setup, resumes, node),
        st.floats(0.1, 100.0),
        st.floats(1.0, 300.0),
        st.floats(0.0, 5.0),
        st.booleans(),
        st.sampled_from([None, None, "n0", "n1"]),
    ),
    max_size=12,
)


@given(jobs_of_any_kind, st.integers(1, 3), st.integers(1, 3), st.floats(1.0, 2.0))
def test_what_is_said_to_be_in_time_fits_at_every_moment(wanted, processors, density, speed):
    nodes = [
        FluidNode(name="n0", processors=processors, pods=processors * density),
        FluidNode(name="n1", processors=1, pods=density, speed=speed),
    ]
    jobs = [
        FluidJob(uid=f"j{i}", work=work, due=due, setup=setup, resumes=resumes, node=node)
        for i, (work, due, setup, resumes, node) in enumerate(wanted)
    ]
    found = arrange(0.0, nodes, jobs)
    if not found.kept:
        return
    runs = []  # node, from, to, need
    for job in jobs:
        stays = job.node is not None and job.uid not in found.overtaken
        node, at = Start(job.node, 0.0) if stays else found.starts[job.uid]
        factor = next(one.speed for one in nodes if one.name == node)
        left = job.remaining(at, factor, waits=not stays)
        assert left.fraction <= 1.0 + 1e-5
        runs.append((node, at, job.due, left.needed))
    for at in {run[1] for run in runs}:
        for node in nodes:
            there = [need for name, begin, end, need in runs if name == node.name and begin <= at < end]
            assert sum(there) <= node.processors + 1e-5
            assert len(there) <= node.pods
