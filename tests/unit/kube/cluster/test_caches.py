"""Whose a pod is: what anyone can write on it makes no pod ours, and none takes room that nobody counts."""

import pytest
from batch_bodies import GATE, gated_pod
from clocks import NO_CLIENT

from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.chunk_pods import EXPECTED
from punctual.kube.cluster.pod_manifest import chunk_pod
from punctual.kube.known.jobs import Owner
from punctual.labels import PLACEHOLDER
from punctual.scheduling.model.events import PodObserved
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.pool_spec import PoolSpec

OWNER = Owner(uid="j1", namespace="ns", name="render", pool="main", units=100)
CHUNK = Chunk(begin=0, end=90, origin=100, node="n1", attempt=2, created=0.0, promised_end=60.0)
CREATED = "2030-01-01T00:00:00Z"
TEMPEXPECTED = {"spec": {"containers": [{"name": "main", "image": "img"}]}}


class Heard:
    """A listener that keeps what it hears of pods, as "key what". The pool counts all pods that it is told of."""

    def __init__(self):
        self.pods = []
        self.counted = set()

    def __getattr__(self, name):
        return lambda *_, **__: None

    def pod(self, key, job, event):
        seen = isinstance(event, PodObserved)
        self.pods.append(f"{key.partition('-')[0]} {event.phase if seen else 'gone'}")
        (self.counted.add if seen else self.counted.discard)(event.uid)

    def counting(self, pod):
        return "main" if pod in self.counted else None


@pytest.fixture
def caches():
    made = Caches(NO_CLIENT)
    made.listener = Heard()
    made.inventory.observe_pool("main", created=0.0, selects=lambda labels: True)
    nodes = made.informers[0]
    room = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    conditions = [{"type": "Ready", "status": "True"}]
    nodes._told({"metadata": {"name": "n1", "uid": "n"}, "status": {"allocatable": room, "conditions": conditions}})
    return made


def know_job(caches):
    meta = {"name": "render", "namespace": "ns", "uid": "j1", "generation": 1, "creationTimestamp": CREATED}
    caches.observe("divisiblejobs", None, {"metadata": meta, "spec": {"pool": "main", "units": 100}})


def chunk_body(uid="p1", phase="Running", chunk=CHUNK, **meta):
    body = chunk_pod(OWNER, chunk, TEMPEXPECTED, processor=PoolSpec(name="main", cpu=3.0, memory=2**30), epoch=1)
    body["metadata"] |= {"uid": uid, "creationTimestamp": CREATED, "resourceVersion": "1", **meta}
    body["spec"]["nodeName"] = "n1"
    body["status"] = {"phase": phase}
    return body


NOTES = chunk_body()["metadata"]["annotations"]


def told(caches, *bodies):
    for body in bodies:
        caches.informers[1]._told(body)


def gone(caches, body):
    caches.informers[1]._tell_deleted(body)


def left(caches):
    """Return the cores that others leave to the pool."""
    (node,) = caches.inventory.events_of("main")
    return node.cpu


def test_a_chunks_pod_is_heard_of_and_takes_no_room_of_others(caches):
    know_job(caches)
    told(caches, chunk_body(), chunk_body(phase="Succeeded"))
    gone(caches, chunk_body(phase="Succeeded"))
    assert caches.listener.pods == ["ns/render Running", "ns/render Succeeded", "ns/render Succeeded", "ns/render gone"]
    assert left(caches) == 8.0
    assert caches.pods.by_key == {}


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"namespace": "elsewhere"}, id="another namespace"),
        pytest.param({"name": "render-forged"}, id="another name"),
        pytest.param({"annotations": {**NOTES, "punctual.dev/attempt": "3"}}, id="another attempt"),
    ],
)
@pytest.mark.parametrize("first", ["job", "pod"])
def test_a_pod_that_only_says_it_is_a_chunk_is_a_stranger_and_takes_room(caches, forged, first):
    if first == "job":
        know_job(caches)
    told(caches, chunk_body(**forged))
    know_job(caches)
    assert left(caches) == 5.0
    told(caches, chunk_body(phase="Succeeded", **forged))
    assert left(caches) == 8.0
    gone(caches, chunk_body(phase="Succeeded", **forged))
    assert caches.listener.pods == []
    assert caches.pods.by_key == {}
    assert caches.pods.job_of("p1") is None
    assert caches.pods.on_node("n1") == {}


def test_a_chunks_pod_that_is_seen_before_its_job_is_ours_when_the_job_is_known(caches):
    told(caches, chunk_body())
    assert left(caches) == 5.0
    assert caches.pods.by_key == {}
    know_job(caches)
    assert left(caches) == 8.0
    assert [pod.uid for pod in caches.pods.by_key.values()] == ["p1"]
    assert caches.pods.job_of("p1") == "j1"
    assert caches.pods._claims == {}


def test_a_placeholder_takes_no_room_of_others_while_it_says_that_it_is_one(caches):
    body = chunk_body(name="placeholder-1", namespace="default", ownerReferences=[], labels={PLACEHOLDER: "u1"})
    told(caches, body)
    assert left(caches) == 8.0
    assert [p.pool for p in caches.placeholders.values()] == ["u1"]
    body["metadata"]["labels"] = {}
    told(caches, body)
    assert left(caches) == 5.0
    assert caches.placeholders == {}
    body["metadata"]["labels"] = {PLACEHOLDER: "u1"}
    told(caches, body)
    assert left(caches) == 8.0
    gone(caches, body)
    assert caches.placeholders == {}


def test_a_pod_that_says_so_in_another_namespace_takes_room(caches):
    told(caches, chunk_body(name="placeholder-1", namespace="theirs", ownerReferences=[], labels={PLACEHOLDER: "u1"}))
    assert left(caches) == 5.0
    assert caches.placeholders == {}


def test_a_pod_that_goes_before_its_job_is_known_leaves_nothing(caches):
    told(caches, chunk_body())
    gone(caches, chunk_body())
    know_job(caches)
    assert caches.listener.pods == []
    assert left(caches) == 8.0
    assert caches.pods._claims == {}


def test_a_chunks_pod_stays_ours_when_its_job_is_gone(caches):
    know_job(caches)
    told(caches, chunk_body())
    caches.directory.jobs.forget("j1")
    told(caches, chunk_body(phase="Succeeded"))
    assert caches.listener.pods[-1] == "ns/render Succeeded"
    assert left(caches) == 8.0


def test_a_chunks_pod_that_is_seen_only_when_its_job_is_gone_is_ours_if_it_was_expected(caches):
    body = chunk_body()
    key = f"ns/{body['metadata']['name']}"
    forged = chunk_body(uid="p2", ownerReferences=[{"uid": "j2"}], labels={**body["metadata"]["labels"]})
    forged["metadata"]["labels"]["punctual.dev/job-uid"] = "j2"
    caches.pods.expect(OWNER, [key])
    told(caches, forged)
    assert caches.listener.pods == []
    gone(caches, forged)
    told(caches, body)
    assert caches.listener.pods == ["ns/render Running"]
    assert left(caches) == 8.0
    gone(caches, body)
    assert caches.listener.pods[-1] == "ns/render gone"
    told(caches, chunk_body(uid="p3"))
    assert left(caches) == 5.0, "it was expected once"


def test_pods_that_never_come_are_expected_in_bounds(caches):
    caches.pods.expect(OWNER, [f"ns/{i}" for i in range(2 * EXPECTED)])
    caches.pods.expect(OWNER, ["ns/last"])
    assert len(caches.pods._expected) == EXPECTED
    assert "ns/last" in caches.pods._expected


def test_a_stranger_that_takes_our_label_and_goes_leaves_its_room(caches):
    know_job(caches)
    mine = chunk_body()
    told(caches, chunk_body(labels={}, ownerReferences=[]))
    assert left(caches) == 5.0
    told(caches, mine)
    gone(caches, mine)
    assert left(caches) == 8.0


def test_a_chunks_pod_that_lost_its_label_takes_room_like_any_other(caches):
    know_job(caches)
    told(caches, chunk_body(), chunk_body(labels={}))
    assert caches.listener.pods == ["ns/render Running", "ns/render gone"]
    assert left(caches) == 5.0


def test_numbers_longer_than_any_hide_no_pod(caches):
    notes = {"punctual.dev/begin": "1" * 5000, "punctual.dev/attempt": "²", "punctual.dev/epoch": "9" * 5000}
    know_job(caches)
    told(caches, chunk_body(annotations=notes))
    assert left(caches) == 5.0
    assert caches.informers[1].counts.failures == 0


def test_a_pod_made_anew_under_the_same_name_is_told_as_gone_first(caches):
    know_job(caches)
    told(caches, chunk_body("p1"), chunk_body("p2"))
    assert caches.listener.pods == ["ns/render Running", "ns/render Running", "ns/render gone", "ns/render Running"]
    assert [pod.uid for pod in caches.pods.by_key.values()] == ["p2"]


def know_ordinary_job(caches):
    """Know the DivisibleJob j1 that has the pods of the Job b1."""
    owners = [{"kind": "Job", "name": "nightly", "uid": "b1"}]
    meta = {"name": "nightly", "namespace": "ns", "uid": "j1", "generation": 1, "creationTimestamp": CREATED}
    spec = {"pool": "main", "units": 100, "jobRef": {"name": "nightly", "uid": "b1"}}
    caches.observe("divisiblejobs", None, {"metadata": meta | {"ownerReferences": owners}, "spec": spec})


def pod_of_job(job="b1", namespace="ns", *, gates=(), phase="Running", labels=None):
    """Return a pod of a Job (uid) with the label of a chunk of j1."""
    body = gated_pod("render-0-abc", job=job, index=0, gates=gates, namespace=namespace)
    body["metadata"]["labels"] = {"punctual.dev/job-uid": "j1"} if labels is None else labels
    body["metadata"]["annotations"] |= {"punctual.dev/begin": "0", "punctual.dev/end": "1"}
    body["spec"] |= {"containers": [{"name": "work", "resources": {"requests": {"cpu": "1"}}}]}
    body["spec"] |= {} if gates else {"nodeName": "n1"}
    return body | {"status": {"phase": phase}}


@pytest.mark.parametrize(
    ("pod", "ours", "cores"),
    [
        (pod_of_job(), True, 8.0),
        (pod_of_job(job="b2"), False, 7.0),
        (pod_of_job(namespace="other"), False, 7.0),
        (pod_of_job(labels={}), False, 7.0),
        (chunk_body(), False, 5.0),
    ],
    ids=["its Job's", "another Job's", "another namespace", "no label", "a chunk's by its name"],
)
@pytest.mark.parametrize("first", ["job", "pod"])
def test_a_pod_is_a_chunk_of_an_ordinary_job_if_that_job_has_made_it(caches, pod, ours, cores, first):
    if first == "job":
        know_ordinary_job(caches)
        told(caches, pod)
    else:
        told(caches, pod)
        know_ordinary_job(caches)
    assert bool(caches.pods.by_key) == ours
    assert caches.pods.is_of_batch(pod["metadata"]["uid"]) == ours
    assert left(caches) == cores


def test_a_pod_of_a_job_is_no_chunk_of_a_job_with_pods_of_its_own(caches):
    know_job(caches)
    told(caches, pod_of_job())
    assert caches.pods.by_key == {}
    assert left(caches) == 7.0


def test_a_pod_at_the_gate_takes_nothing_and_is_a_chunk_only_when_it_has_left_it(caches):
    know_ordinary_job(caches)
    waits = pod_of_job(gates=[GATE], phase="Pending")
    told(caches, waits)
    assert [pod.unit for pod in caches.batch.gated("b1")] == [0]
    assert (caches.pods.by_key, left(caches)) == ({}, 8.0)
    told(caches, pod_of_job())
    assert caches.batch.gated("b1") == []
    assert caches.listener.pods == ["ns/render Running"]
    gone(caches, pod_of_job())
    assert caches.listener.pods[-1] == "ns/render gone"


def test_a_pod_that_goes_at_the_gate_is_forgotten(caches):
    told(caches, pod_of_job(gates=[GATE]))
    gone(caches, pod_of_job(gates=[GATE]))
    assert caches.batch.gated("b1") == []
    told(caches, pod_of_job(gates=[GATE]))
    told(caches, pod_of_job(gates=[{"name": "another"}]))
    assert caches.batch.gated("b1") == []
