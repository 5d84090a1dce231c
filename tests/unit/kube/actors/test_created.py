"""What becomes of the create of a pod: its pool hears of a refusal, and of a pod that was there before."""

from types import SimpleNamespace

import pytest
from clocks import NO_CLIENT
from term_tools import make_tools

from punctual.kube.actors.pod_events import TermPods
from punctual.kube.actors.runners import Runners
from punctual.kube.api.resources import JOBS
from punctual.kube.cluster.caches import Caches
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import CreatePod, Outcome
from punctual.scheduling.model.events import CreateRefused, PodObserved

NOTES = {"punctual.dev/begin": "10", "punctual.dev/attempt": "2"}
THERE = PodObserved("p", "p1", "ns", "j", "Chunk", 0, 1, 0, "n1", "Running", 0.0)


class Edge:
    def __init__(self):
        self.told, self.lent = [], []
        self.caches = Caches(NO_CLIENT)
        job = self.caches.directory.jobs.observe({"metadata": {"name": "j", "namespace": "ns", "uid": "j"}})
        job.term.pool = "main"
        self.caches.pods = SimpleNamespace(of_job=lambda _job: [THERE])
        actors = SimpleNamespace(tell=lambda pool, event: self.told.append((pool, event)))
        guests = SimpleNamespace(tell=lambda pool, event: self.lent.append((pool, event)))
        self.pods = TermPods(self.caches, actors, guests, None)
        self.runner = Runners(make_tools(None, caches=self.caches), None).runner_of("j")

    def create(self, result, kind="Chunk", job="j", **more):
        body = {"metadata": {"name": "p", "labels": {"punctual.dev/kind": kind}, "annotations": NOTES}}
        create = CreatePod("ns", body, lambda _: True)
        for event in self.runner.settled(Outcome(Key(JOBS, job), create, result, "no", **more)):
            self.pods.changed(job, event)


@pytest.fixture
def edge():
    return Edge()


@pytest.mark.parametrize(("result", "taken"), [("refused", False), ("conflict", True)])
def test_a_pool_hears_that_its_pod_was_refused(edge, result, taken):
    edge.create(result)
    event = CreateRefused(job="j", kind="Chunk", begin=10, attempt=2, message="no", taken=taken)
    assert (edge.told, edge.lent) == ([("main", event)], [])


def test_the_guests_of_a_pool_hear_of_theirs(edge):
    edge.create("refused", kind="Guest")
    assert edge.told == []
    ((pool, event),) = edge.lent
    assert (pool, event.kind) == ("main", "Guest")


def test_what_was_made_is_told_by_the_watch(edge):
    edge.create("done")
    edge.create("refused", job="one that is gone")
    assert (edge.told, edge.lent) == ([], [])


@pytest.mark.parametrize(("result", "told"), [("done", 1), ("conflict", 2)])
def test_a_pod_that_was_there_before_its_create_is_told_again(edge, result, told):
    edge.create(result, body={"metadata": {"uid": "p1"}}, existed=True)
    assert len(edge.told) == told
    assert edge.told[-1] == ("main", THERE)


def test_another_pod_of_the_job_is_not(edge):
    edge.create("done", body={"metadata": {"uid": "p2"}}, existed=True)
    assert edge.told == []
