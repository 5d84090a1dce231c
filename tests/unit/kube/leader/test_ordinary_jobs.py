"""Ordinary Jobs with a deadline under a leader: its writes, through the real client, on the API server's model."""

import pytest
from batch_bodies import batch_body, gated_pod
from term_world import World

from punctual import reasons
from punctual.kube.api.resources import BATCH_JOBS, JOBS, PODS

JOB, HELD = BATCH_JOBS.path(namespace="ns", name="nightly"), JOBS.path(namespace="ns", name="nightly")


class Cluster(World):
    """A world with one replica that leads, and sees what a test shows it."""

    def __init__(self):
        super().__init__()
        self.leader = None

    def lead(self, epoch):
        self.leader = self.replica()
        self.show_job()
        self.leader.lead(epoch)

    def create(self, **more):
        """Create a Job that is due 45 minutes from now."""
        body = batch_body(**more)
        made = {"name": "nightly", "labels": body["metadata"]["labels"], "annotations": body["metadata"]["annotations"]}
        self.server.ask("POST", BATCH_JOBS.path(namespace="ns"), {**body, "metadata": made})
        self.show_job()

    def show_job(self):
        if JOB in self.server.objects:
            self.leader.caches.informers[3]._told(self.server.objects[JOB])

    def show_held(self):
        self.leader.observe("MODIFIED", self.server.objects[HELD])

    def owner(self):
        """Return the uid of the DivisibleJob's owner."""
        owners = self.server.objects.get(HELD, {}).get("metadata", {}).get("ownerReferences") or [{"uid": ""}]
        return owners[0]["uid"]

    @property
    def uid(self):
        return self.server.objects[JOB]["metadata"]["uid"]

    def pod(self, index):
        """Create a pod of the Job, which waits at the gate."""
        body = gated_pod(f"nightly-{index}", job=self.uid, index=index)
        self.leader.see_pod(self.server.ask("POST", PODS.path(namespace="ns"), body))

    def started(self):
        """Return the names of the pods that have left the gate."""
        pods = self.server.living.values()
        return sorted(pod["metadata"]["name"] for pod in pods if not pod["spec"].get("schedulingGates"))


@pytest.fixture
async def cluster():
    async with Cluster() as made:
        made.lead(1)
        yield made


async def test_a_job_is_promised_and_opened_and_its_pods_start_when_they_come(cluster):
    cluster.create()
    await cluster.until(cluster.owner)
    cluster.show_held()
    await cluster.until(lambda: not cluster.server.objects[JOB]["spec"]["suspend"])
    cluster.pod(1)  # one processor is enough, and does one index after the other
    cluster.pod(0)
    await cluster.until(cluster.started)
    assert cluster.started() == ["nightly-0"]
    spec = cluster.server.objects[PODS.path(namespace="ns", name="nightly-0")]["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/hostname": "n1"}
    assert cluster.server.deleted == []


async def test_the_next_leader_starts_the_pods_that_have_come_meanwhile(cluster):
    cluster.create()
    await cluster.until(cluster.owner)
    cluster.show_held()
    await cluster.until(lambda: cluster.status(cluster.server.objects[HELD]).get("chunks"))
    await cluster.until(lambda: not cluster.server.objects[JOB]["spec"]["suspend"])
    former = cluster.leader
    await former.end()
    cluster.replicas.remove(former)
    cluster.pod(0)
    cluster.leader.caches.batch.observe_gated("ns/nightly-0", None)
    cluster.lead(2)
    assert cluster.started() == []
    cluster.leader.see_pod(cluster.server.objects[PODS.path(namespace="ns", name="nightly-0")])
    await cluster.until(lambda: cluster.started() == ["nightly-0"])


async def test_a_taken_name_is_told_and_the_job_is_asked_for_when_it_is_free(cluster):
    foreign = cluster.job("nightly")
    cluster.leader.observe("ADDED", foreign)
    cluster.create()
    await cluster.until(lambda: ("nightly", reasons.NAME_TAKEN) in cluster.server.events)
    assert cluster.server.objects[HELD]["metadata"]["uid"] == foreign["metadata"]["uid"]
    assert cluster.server.objects[JOB]["spec"]["suspend"]
    cluster.remove(foreign)
    cluster.leader.observe("DELETED", foreign)
    await cluster.until(lambda: cluster.owner() == cluster.uid)


async def test_a_job_ref_by_hand_is_refused_and_takes_no_pod(cluster):
    cluster.create(suspend=False)
    ref = {"jobRef": {"name": "nightly", "uid": cluster.uid}}
    forged = cluster.job("nightly", **ref)
    cluster.leader.observe("ADDED", forged)
    cluster.pod(0)
    await cluster.until(lambda: cluster.admitted(forged))
    assert cluster.admitted(forged) == reasons.INVALID_SPEC
    (said,) = (c["message"] for c in cluster.status(forged)["conditions"] if c["type"] == "Admitted")
    assert said.startswith("spec.jobRef: ")
    assert cluster.started() == []
    assert cluster.server.pods == []
