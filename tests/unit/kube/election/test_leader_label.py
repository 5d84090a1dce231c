import asyncio
from contextlib import asynccontextmanager

import pytest
from clocks import clock

from punctual.errors import Unreachable
from punctual.kube.election.leader_label import LeaderLabel
from punctual.labels import LEADER_LABEL


class Pods:
    """The one call that is made: what the pod shows, and how often it cannot be reached."""

    def __init__(self):
        self.clock = clock(asyncio.get_running_loop().time)
        self.label = "true"  # left by an earlier process
        self.unreachable = 0
        self.loses_answers = 0
        self.tried = 0
        self.called = asyncio.Event()

    async def patch_merge(self, path, body):
        assert path == "/api/v1/namespaces/system/pods/me"
        self.tried += 1
        self.called.set()
        await asyncio.sleep(0)
        if self.unreachable > 0:
            self.unreachable -= 1
            raise Unreachable("no answer", retry_after=0.01)
        self.label = body["metadata"]["labels"][LEADER_LABEL]
        if self.loses_answers > 0:
            self.loses_answers -= 1
            raise Unreachable("no answer", retry_after=0.01)


@pytest.fixture
async def pods():
    return Pods()


@asynccontextmanager
async def running(pods, pod="me"):
    label = LeaderLabel(pods, namespace="system", pod=pod)
    task = asyncio.ensure_future(label.run())
    try:
        await label.settled(1.0)
        yield label
    finally:
        task.cancel()


async def test_what_an_earlier_process_of_the_pod_left_is_taken_off(pods):
    async with running(pods):
        assert pods.label is None


async def test_a_replica_that_lost_the_lease_takes_it_off_as_soon_as_it_can_be_written(pods):
    async with running(pods) as label:
        label.show(leading=True)
        await label.settled(1.0)
        assert pods.label == "true"
        pods.unreachable = 3
        label.show(leading=False)
        await label.settled(1.0)
        assert pods.label is None


async def test_of_many_changes_the_last_is_shown(pods):
    async with running(pods) as label:
        before = pods.tried
        for leading in (True, False, True, False, True):
            label.show(leading=leading)
        await label.settled(1.0)
        assert pods.label == "true"
        assert pods.tried == before + 1


async def test_a_change_while_it_is_written_is_written_behind_it(pods):
    async with running(pods) as label:
        label.show(leading=True)
        pods.called.clear()
        await pods.called.wait()
        label.show(leading=False)
        await label.settled(1.0)
        assert pods.label is None


async def test_outside_a_cluster_there_is_nothing_to_write(pods):
    async with running(pods, pod="") as label:
        label.show(leading=True)
        await label.settled(1.0)
        assert pods.tried == 0


async def test_a_removal_whose_answer_was_lost_is_undone_when_the_replica_leads_again(pods):
    async with running(pods) as label:
        label.show(leading=True)
        await label.settled(1.0)
        pods.loses_answers = 1
        label.show(leading=False)
        while pods.label is not None:  # noqa: ASYNC110  a few turns of the loop
            await asyncio.sleep(0)
        label.show(leading=True)
        await label.settled(1.0)
        await asyncio.sleep(0.05)
        assert pods.label == "true", "the Service selects no replica, so no agent can report"


@pytest.mark.looptime
async def test_a_label_that_came_back_is_taken_off_when_agents_ask_a_replica_that_does_not_lead(pods):
    async with running(pods) as label:
        pods.label = "true"  # the store was set back
        label.doubt()
        await asyncio.sleep(1)
        assert pods.label is None
        pods.label = "true"
        label.doubt()
        await asyncio.sleep(1)
        assert pods.label == "true"  # not again so soon
        await asyncio.sleep(10)
        label.doubt()
        await asyncio.sleep(1)
        assert pods.label is None
        label.show(leading=True)
        await asyncio.sleep(10)
        label.doubt()
        await asyncio.sleep(1)
        assert pods.label == "true"
