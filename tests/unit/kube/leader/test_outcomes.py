"""Where the outcome of a write goes: the types of its key and of its operation tell, and nothing else."""

from unittest.mock import Mock

import pytest

from punctual.kube import api
from punctual.kube.leader.outcomes import Outcomes
from punctual.kube.writes.keys import (
    FinalizersKey,
    JobKey,
    NodeKey,
    PlaceholderKey,
    PoolKey,
    ProfileKey,
    RateKey,
    ReservationKey,
)
from punctual.kube.writes.operations import ApplyConfigMap, CreatePod, Outcome, Patch, PutStatus
from punctual.scheduling.model.events import CreateRefused

PARTS = [
    "directory",
    "actors",
    "jobs",
    "pods",
    "pools",
    "reservations",
    "rates",
    "windows",
    "results",
    "guests",
    "placeholders",
    "taints",
    "promise_metrics",
    "recorder",
]
NOTES = {"punctual.dev/begin": "10", "punctual.dev/attempt": "2"}
POD = {"metadata": {"name": "p", "labels": {"punctual.dev/kind": "Chunk"}, "annotations": NOTES}}


def status(kind):
    return PutStatus(
        "/path", {"apiVersion": api.API_VERSION, "kind": kind, "metadata": {"name": "x", "uid": "u"}, "status": {}}
    )


class Edge:
    """The parts of a term, and which of their methods were called, in order."""

    def __init__(self):
        self.all = Mock()
        self.all.pools.status_refused.side_effect = lambda uid, _write, _why: uid == "u"
        self.outcomes = Outcomes(**{name: getattr(self.all, name) for name in PARTS})

    def take(self, key, operation, result, message=""):
        self.all.reset_mock()
        self.outcomes.take(Outcome(key, operation, result, message))
        return [name for name, _, _ in self.all.mock_calls if name not in {"actors.settled", "guests.settled"}]


@pytest.fixture
def edge():
    return Edge()


@pytest.mark.parametrize(
    ("key", "result", "called"),
    [
        (JobKey("u"), "done", ["promise_metrics.written"]),
        (PoolKey("u"), "done", ["pools.status_written"]),
        (ReservationKey("u"), "done", ["windows.written"]),
        (RateKey("u"), "done", []),
        (ProfileKey("u"), "done", []),
        (JobKey("u"), "gone", ["directory.forget_job", "jobs.gone"]),
        (PoolKey("u"), "gone", ["pools.status_unfound"]),
        (ReservationKey("u"), "gone", ["directory.forget_reservation", "reservations.gone"]),
        (RateKey("u"), "gone", ["directory.forget_rate", "rates.gone"]),
        (ProfileKey("u"), "gone", []),
        (JobKey("u"), "refused", ["recorder.emit"]),
        (PoolKey("u"), "refused", ["pools.status_refused"]),
        (PoolKey("a pool that is gone"), "refused", ["pools.status_refused", "recorder.emit"]),
        (ReservationKey("u"), "refused", ["recorder.emit"]),
        (RateKey("u"), "refused", ["recorder.emit"]),
        (ProfileKey("u"), "refused", ["recorder.emit"]),
    ],
)
def test_a_status_goes_to_the_part_of_its_keys_type_alone(edge, key, result, called):
    assert edge.take(key, status("Any"), result, "too large") == called
    edge.all.actors.settled.assert_called_once_with(key)
    edge.all.guests.settled.assert_called_once_with(key)


def test_a_pod_that_is_refused_is_its_pools_unless_it_is_a_placeholder(edge):
    create = CreatePod("ns", POD, lambda _: True)
    assert edge.take(JobKey("j"), create, "done") == []
    assert edge.take(JobKey("j"), create, "conflict", "another") == ["jobs.refused"]
    refused = CreateRefused(job="j", kind="Chunk", begin=10, attempt=2, message="another", taken=True)
    edge.all.jobs.refused.assert_called_once_with(refused)
    for result in ("done", "refused"):
        assert edge.take(PlaceholderKey(0), create, result) == ["placeholders.settled"]


def test_a_pod_that_was_there_before_its_create_is_told_again(edge):
    create = CreatePod("ns", POD, lambda _: True)
    edge.outcomes.take(Outcome(JobKey("j"), create, "done", body={"metadata": {"uid": "p1"}}, existed=True))
    edge.all.pods.told_again.assert_called_once_with("j", "p1")
    edge.all.reset_mock()
    edge.outcomes.take(Outcome(JobKey("j"), create, "conflict", "", {"metadata": {"uid": "p1"}}, existed=True))
    assert [name for name, _, _ in edge.all.mock_calls] == ["jobs.refused", "pods.told_again"]


def test_a_patch_is_a_result_a_taint_or_a_finalizer_by_its_key(edge):
    patch = Patch("/path", {})
    assert edge.take(NodeKey("n1"), patch, "refused") == ["taints.settled"]
    assert edge.take(NodeKey("n1"), patch, "done") == ["taints.settled"]
    assert edge.take(JobKey("j"), patch, "done") == []
    assert edge.take(JobKey("j"), patch, "gone") == ["results.failed"]
    assert edge.take(JobKey("j"), ApplyConfigMap("/path", {}), "refused") == ["results.failed"]
    assert edge.take(FinalizersKey("u"), patch, "refused") == []
