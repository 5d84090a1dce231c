import asyncio
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.errors import ClusterError
from punctual.runtime.mailbox import Mailbox
from punctual.scheduling.model.event_keys import key_of, merged
from punctual.scheduling.model.events import (
    JobApplied,
    JobDeleted,
    NodeGone,
    NodeObserved,
    PodGone,
    PodObserved,
    Progress,
    Reported,
)
from punctual.scheduling.model.job import Job
from punctual.theory.cost import Cost

JOB = Job(uid="j1", namespace="ns", name="render", arrival=0.0, units=100, deadline=60.0, cost=Cost(chi=1.0))
POD = PodObserved(
    name="render-1",
    uid="p1",
    namespace="ns",
    job="j1",
    kind="Chunk",
    begin=0,
    end=10,
    attempt=1,
    node="n1",
    phase="Running",
    created=0.0,
)


def node(name, cpu=1.0):
    return NodeObserved(name=name, ready=True, cpu=cpu, memory=0)


def line(pod, done):
    return Progress(pod=pod, done=done, end=None, cpu_seconds=0.0)


async def test_the_newest_of_each_key_is_kept_in_the_order_of_its_put():
    box = Mailbox(key_of, merged)
    for event in (node("a", 1.0), node("b"), node("a", 2.0)):
        box.put(event)
    assert box.take() == [node("b"), node("a", 2.0)]
    assert box.take() == []


async def test_a_deletion_takes_the_place_of_the_apply_before_it():
    box = Mailbox(key_of, merged)
    box.put(JobApplied(JOB))
    box.put(JobDeleted("j1"))
    assert box.take() == [JobDeleted("j1")]


async def test_a_pod_that_ended_and_vanished_between_two_looks_keeps_its_exit_code():
    box = Mailbox(key_of, merged)
    ended = POD._replace(phase="Succeeded", exit_code=0)
    box.put(POD)
    box.put(ended)
    box.put(PodGone("ns", "render-1", "p1"))
    assert box.take() == [ended, PodGone("ns", "render-1", "p1")]


async def test_reports_of_one_node_merge_by_pod():
    box = Mailbox(key_of, merged)
    box.put(Reported("n1", (line("p1", 3), line("p2", 5))))
    box.put(Reported("n1", (line("p1", 4),)))
    (event,) = box.take()
    assert {p.pod: p.done for p in event.pods} == {"p1": 4, "p2": 5}


async def test_depth_and_age_are_numbers_of_what_waits():
    at = 10.0
    box = Mailbox(key_of, merged, monotonic=lambda: at)
    assert (box.depth, box.age) == (0, 0.0)
    box.put(node("a"))
    at = 12.5
    box.put(node("b"))
    assert (box.depth, box.age) == (2, 2.5)
    box.take()
    assert (box.depth, box.age) == (0, 0.0)


async def test_a_full_mailbox_says_so_instead_of_dropping():
    box = Mailbox(key_of, merged, limit=2)
    for name in "abc":
        box.put(node(name))
    with pytest.raises(ClusterError, match="rebuild"):
        box.take()


async def test_a_newer_event_of_a_known_key_needs_no_room():
    box = Mailbox(key_of, merged, limit=1)
    box.put(node("a"))
    box.put(NodeGone("a"))
    assert box.take() == [NodeGone("a")]


async def test_mail_from_another_thread_ends_the_wait():
    box = Mailbox(key_of, merged)
    thread = threading.Thread(target=box.put, args=(node("a"),))
    async with asyncio.timeout(60):
        waiting = asyncio.ensure_future(box.wait(at_most=60))
        thread.start()
        await waiting
    thread.join()
    assert box.take() == [node("a")]


async def test_without_mail_the_wait_ends_at_its_time():
    box = Mailbox(key_of, merged)
    await box.wait(at_most=0.001)
    assert box.take() == []


async def test_mail_that_came_before_the_wait_ends_it():
    box = Mailbox(key_of, merged)
    box.put(node("a"))
    async with asyncio.timeout(60):
        await box.wait(at_most=60)


EVENTS = st.one_of(
    st.builds(node, st.sampled_from("ab"), st.floats(0, 2)),
    st.builds(NodeGone, st.sampled_from("ab")),
    st.builds(lambda g: JobApplied(replace(JOB, generation=g)), st.integers(1, 9)),
    st.just(JobDeleted("j1")),
    st.builds(lambda p: POD._replace(phase=p), st.sampled_from(["Pending", "Running", "Succeeded"])),
    st.just(PodGone("ns", "render-1", "p1")),
)


@given(st.lists(EVENTS, max_size=20))
def test_what_is_taken_is_the_last_put_of_each_key_in_order(events):
    async def story():
        box = Mailbox(key_of, merged)
        for event in events:
            box.put(event)
            box.check()
        return box.take()

    last = {key_of(e): i for i, e in enumerate(events)}
    assert asyncio.run(story()) == [events[i] for i in sorted(last.values())]
