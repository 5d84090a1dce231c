"""Pods of ordinary Jobs that wait at the gate: which one starts for which chunk, and when."""

import pytest
from batch_bodies import CREATED, GATE, gated_pod, started_pod
from clocks import NO_CLIENT
from term_tools import make_tools

from punctual.kube.actors.created_pods import CreatedPods
from punctual.kube.actors.runners import Runners
from punctual.kube.api.resources import JOBS
from punctual.kube.cluster.caches import Caches
from punctual.kube.known.store import Signal
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import Outcome
from punctual.scheduling.model.actions import EndPod, StopPod
from punctual.scheduling.model.events import CreateRefused
from punctual.scheduling.model.job import Chunk, JobRecord
from punctual.scheduling.model.pool_spec import PoolSpec

PROCESSOR = PoolSpec(name="main", cpu=1.0, memory=2**26)


def chunk(begin, attempt=0, node="n1", **more):
    return Chunk(
        begin=begin, end=begin + 1, origin=begin + 1, node=node, attempt=attempt, created=0.0, promised_end=9.0, **more
    )


class Stage:
    """The runners of a term, with a Job's pods. Its writer keeps the starts until a test settles them."""

    def __init__(self):
        self.submitted = []
        self.caches = Caches(NO_CLIENT)
        self.caches.listener = self
        self.gated = None
        room = {"cpu": "8", "memory": "64Gi", "pods": "110"}
        for name, host in (("n1", "n1"), ("n2", "host-2")):
            meta = {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": host}}
            ready = [{"type": "Ready", "status": "True"}]
            self.caches.informers[0]._told({"metadata": meta, "status": {"allocatable": room, "conditions": ready}})
        self.known = self.caches.directory.jobs.observe(divisible_job("d1", "nightly", "b1"))
        self.caches.directory.jobs.observe(divisible_job("d2", "plain", ""))
        self.begin()

    def __getattr__(self, name):  # what else the caches tell
        return lambda *_, **__: None

    def begin(self, epoch=3):
        """Let a new term begin."""
        self.runners = Runners(make_tools(self, caches=self.caches, epoch=epoch), None)
        self.gated = self.runners.gated

    def signal(self, signal):
        if self.gated and signal.kind == "gated":
            self.gated.arrived(signal.key)

    def submit(self, key, operation):
        assert key == Key(JOBS, "d1")
        self.submitted.append(operation)

    def told(self, *bodies):
        for body in bodies:
            self.caches.informers[1]._told(body)

    def gone(self, body):
        self.caches.informers[1]._tell_deleted(body)

    def record(self, *chunks):
        self.known.term.record = JobRecord(chunks=chunks)

    def start(self, *chunks):
        """Let the Pool decide on chunks, beside those on record; return the pods that start at once."""
        there = self.known.term.record.chunks if self.known.term.record else ()
        self.record(*there, *(one for one in chunks if one not in there))
        starts = [op for one in chunks for op in self.runners.runner_of("d1").start(self.known, one, PROCESSOR)]
        self.submitted += starts
        return said(starts)

    def came(self):
        """Return what was started since it was asked last."""
        made, self.submitted = said(self.submitted), []
        return made

    def settle(self, start, result, message="no"):
        return list(self.gated.settled(Outcome(Key(JOBS, "d1"), start, result, message)))


def said(starts):
    """Return (pod, begin, attempt) of starts."""
    return [(one.path.rpartition("/")[2], one.chunk.begin, one.chunk.attempt) for one in starts]


def divisible_job(uid, name, batch):
    owner = [{"kind": "Job", "name": name, "uid": batch}] if batch else []
    template = {"spec": {"containers": [{"name": "work", "image": "w:1"}, {"name": "log", "image": "l"}]}}
    spec = {"pool": "main", "units": 9, "template": template}
    meta = {"name": name, "namespace": "ns", "uid": uid, "generation": 1, "creationTimestamp": CREATED}
    ref = {"jobRef": {"name": name, "uid": batch}} if batch else {}
    return {"metadata": meta | {"ownerReferences": owner}, "spec": spec | ref}


@pytest.fixture
def stage():
    return Stage()


def test_a_start_pins_the_pod_marks_it_and_opens_the_gate(stage):
    stage.told(gated_pod("p2", index=2, uid="u2"))
    stage.start(chunk(2, attempt=1, node="n2"))
    (start,) = stage.submitted
    assert start.path == "/api/v1/namespaces/ns/pods/p2"
    assert start.body == {
        "metadata": {
            "uid": "u2",
            "labels": {
                "punctual.dev/pool": "main",
                "punctual.dev/job": "nightly",
                "punctual.dev/job-uid": "d1",
                "punctual.dev/kind": "Chunk",
            },
            "annotations": {
                "punctual.dev/begin": "2",
                "punctual.dev/end": "3",
                "punctual.dev/attempt": "1",
                "punctual.dev/epoch": "3",
                "punctual.dev/work": "work",
            },
        },
        "spec": {"schedulingGates": None, "nodeSelector": {"kubernetes.io/hostname": "host-2"}},
    }


def test_gates_of_others_stay(stage):
    other = {"name": "example.org/quota"}
    stage.told(gated_pod("p0", index=0, gates=[other, GATE]))
    stage.start(chunk(0))
    assert stage.submitted[0].body["spec"]["schedulingGates"] == [other]
    stage.told(gated_pod("p1", index=1, gates=[other]))
    assert stage.start(chunk(1)) == [], "it is not at our gate"


def test_an_index_is_done_by_its_own_pod(stage):
    stage.told(gated_pod("p1", index=1), gated_pod("p0", index=0))
    assert stage.start(chunk(0), chunk(2)) == [("p0", 0, 0)]


@pytest.mark.parametrize("index", ["", "-1", "one", "9" * 11, "0x1"])
def test_without_an_index_any_pod_does_a_unit(stage, index):
    notes = {"batch.kubernetes.io/job-completion-index": index} if index else {}
    stage.told(gated_pod("a", annotations=notes), gated_pod("b"))
    assert sorted(pod for pod, *_ in stage.start(chunk(3), chunk(4))) == ["a", "b"]


def test_a_chunk_without_a_pod_waits_and_starts_when_it_comes(stage):
    assert stage.start(chunk(0), chunk(1)) == []
    stage.told(gated_pod("p2", index=2), gated_pod("p1", index=1))
    assert stage.came() == [("p1", 1, 0)]
    stage.told(gated_pod("p0", index=0))
    assert stage.came() == [("p0", 0, 0)]
    stage.told(gated_pod("p0", index=0, labels={"a": "b"}))
    assert stage.came() == []


def test_pods_of_other_jobs_are_not_taken(stage):
    stage.start(chunk(0))
    stage.told(gated_pod("p0", index=0, job="b2"), gated_pod("q0", index=0, ownerReferences=[]))
    stage.told(gated_pod("r0", index=0, deletionTimestamp=CREATED))
    assert stage.came() == []


def test_a_chunk_that_was_given_up_is_not_started(stage):
    stage.start(chunk(0), chunk(1))
    stage.record(chunk(1), chunk(0, attempt=1))
    stage.told(gated_pod("p0", index=0), gated_pod("p1", index=1))
    assert stage.came() == [("p1", 1, 0)]
    stage.start(chunk(0, attempt=1))
    assert stage.came() == [("p0", 0, 1)]


def test_two_chunks_never_get_one_pod(stage):
    """Neither while its start is on its way, nor until the pod is seen to have left the gate."""
    stage.told(gated_pod("a"))
    assert stage.start(chunk(0), chunk(1)) == [("a", 0, 0)]
    (start,) = stage.submitted
    assert stage.settle(start, "done") == []
    stage.told(gated_pod("a", gates=[GATE, {"name": "example.org/seen-late"}]))
    assert stage.start(chunk(2)) == []
    assert stage.came() == [("a", 0, 0)]
    stage.told(gated_pod("a", gates=[]), gated_pod("b"))
    assert stage.came() == [("b", 1, 0)]


@pytest.mark.parametrize("first", ["successor", "answer"])
def test_a_chunk_with_a_pod_that_is_gone_waits_for_the_next_one(stage, first):
    stage.told(gated_pod("a", index=0))
    stage.start(chunk(0))
    (start,) = stage.submitted
    stage.came()
    if first == "successor":
        stage.told(gated_pod("b", index=0))
        assert stage.came() == []
        assert stage.settle(start, "gone") == []
    else:
        assert stage.settle(start, "gone") == []
        assert stage.came() == [], "the pod that is gone is seen at the gate for a while"
        stage.told(gated_pod("b", index=0))
    assert stage.came() == [("b", 0, 0)]


def test_a_refusal_is_told_and_the_next_attempt_may_take_the_pod(stage):
    stage.told(gated_pod("a", index=0))
    stage.start(chunk(0))
    (start,) = stage.submitted
    stage.came()
    told = CreateRefused(job="d1", kind="Chunk", begin=0, attempt=0, message="quota")
    assert stage.settle(start, "refused", "quota") == [told]
    stage.record()
    assert stage.start(chunk(0, attempt=1)) == [("a", 0, 1)]


def test_a_new_leader_starts_again_without_harm(stage):
    stage.told(gated_pod("p0", index=0), gated_pod("p1", index=1))
    stage.start(chunk(0), chunk(1))
    stage.came()
    stage.told(gated_pod("p0", index=0, gates=[]))
    stage.begin(epoch=4)
    assert stage.start(chunk(0), chunk(1)) == [("p1", 1, 0)], "the other one has started"
    (start,) = stage.submitted
    stage.came()
    assert stage.settle(start, "done") == []
    stage.told(gated_pod("p1", index=1, gates=[]))
    assert stage.came() == []


def test_a_job_with_a_spec_that_was_not_kept_starts_nothing(stage):
    stage.told(gated_pod("p0", index=0))
    stage.known.flaw = "too large"
    told = CreateRefused(job="d1", kind="Chunk", begin=0, attempt=2, message="too large")
    assert stage.gated.start(stage.known, chunk(0, attempt=2), PROCESSOR) == told


def test_of_a_job_that_is_gone_nothing_starts(stage):
    stage.told(gated_pod("p0", index=0))
    stage.start(chunk(0), chunk(1))
    (start,) = stage.submitted
    stage.came()
    stage.caches.directory.jobs.forget("d1")
    stage.gated.forget("d1")
    stage.told(gated_pod("p1", index=1))
    assert stage.settle(start, "gone") == []
    assert stage.came() == []
    assert (stage.gated._waiting, stage.gated._started) == ({}, {})


@pytest.mark.parametrize("gone", [False, True])
def test_the_pods_of_a_job_are_never_ended_also_if_its_divisible_job_is_gone(stage, gone):
    stage.told(started_pod("p0", uid="u0"))
    if gone:
        stage.caches.directory.jobs.forget("d1")
    runner = stage.runners.runner_of_pod("u0")
    assert runner is stage.gated
    for end in (EndPod("ns", "p0", "u0"), StopPod("ns", "p0", "u0")):
        assert runner.end(end) == []


def test_the_runner_follows_from_the_job_and_from_who_made_the_pod(stage):
    assert stage.runners.runner_of("d1") is stage.gated
    assert isinstance(stage.runners.runner_of("d2"), CreatedPods)
    assert isinstance(stage.runners.runner_of("gone"), CreatedPods)
    assert isinstance(stage.runners.runner_of_pod("unknown"), CreatedPods)
    body = started_pod("p0", uid="u0")
    stage.told(body)
    stage.gone(body)
    assert isinstance(stage.runners.runner_of_pod("u0"), CreatedPods)


def test_a_job_that_follows_another_one_is_signalled_by_its_own_pods_alone(stage):
    heard = []
    stage.signal = heard.append
    stage.told(gated_pod("p0", index=0))
    stage.told(gated_pod("p0", index=0, gates=[]))
    stage.gone(gated_pod("p0", index=0, gates=[]))
    assert [signal for signal in heard if signal.kind == "gated"] == [Signal("gated", "b1")] * 2
