"""What an uninstallation does about ordinary Jobs: none waits at a gate that nothing opens."""

from types import SimpleNamespace

import pytest
from batch_bodies import GATE, gated_pod

from punctual import errors
from punctual.kube.uninstall import suspend_jobs

OTHER = {"name": "example.org/quota"}


class Server:
    """An API server with pods and their Jobs, in pages of two. ``fails``: what a patch of a Job raises, by its name."""

    def __init__(self, *pods):
        self.pods, self.patched, self.fails = pods, {}, {}
        self.notes, self.parallelism = {}, 2

    async def pages(self, path, **words):
        if path == "/api/v1/pods":
            assert words == {"field_selector": "status.phase=Pending"}
            found = self.pods
        else:
            assert (path, words) == ("/apis/batch/v1/jobs", {})
            found = [*self.jobs()]
        for first in range(0, len(found), 2):
            yield SimpleNamespace(items=found[first : first + 2])

    def jobs(self):
        """Yield the Jobs of the pods."""
        spec = {"parallelism": self.parallelism}
        named = {
            (pod["metadata"]["namespace"], owner["name"], owner["uid"]) for pod in self.pods for owner in owners(pod)
        }
        for namespace, name, uid in sorted(named):
            meta = {"namespace": namespace, "name": name, "uid": uid, "annotations": self.notes}
            yield {"metadata": meta, "spec": spec}

    async def patch_merge(self, path, body):
        name = path.rpartition("/")[2]
        if name in self.fails:
            raise self.fails[name]
        self.patched[path] = body


def owners(pod):
    return pod["metadata"]["ownerReferences"]


def pod(name, job, *, namespace="ns", gates=(GATE,), **meta):
    body = gated_pod(name, job=f"{namespace} {job} uid", gates=gates, namespace=namespace, **meta)
    for owner in owners(body):
        owner["name"] = job
    return body


def path(job, namespace="ns"):
    return f"/apis/batch/v1/namespaces/{namespace}/jobs/{job}"


async def suspended(server):
    """Return what was told."""
    told = []
    await suspend_jobs(server, told.append)
    return told


async def test_jobs_with_pods_at_the_gate_are_suspended_once_and_named():
    server = Server(
        pod("a-0", "a"), pod("a-1", "a"), pod("b-0", "b", gates=[OTHER, GATE]), pod("c-0", "a", namespace="other")
    )
    (told,) = await suspended(server)
    assert server.patched == {
        path(job, space): {
            "metadata": {"uid": f"{space} {job} uid", "annotations": {"punctual.dev/opened": None}},
            "spec": {"suspend": True},
        }
        for space, job in (("ns", "a"), ("ns", "b"), ("other", "a"))
    }
    assert told.startswith(
        "3 Jobs suspended, because pods waited at the gate punctual.dev/chunk: ns/a, ns/b, other/a. "
    )
    assert "Kubernetes ends those of their pods that run" in told


async def test_a_job_gets_its_own_parallelism_back():
    server = Server(pod("a-0", "a"))
    server.notes = {"punctual.dev/parallelism": "200", "punctual.dev/parallelism-written": "2"}
    await suspended(server)
    (patch,) = server.patched.values()
    assert patch["spec"] == {"parallelism": 200, "suspend": True}
    assert patch["metadata"]["annotations"] == dict.fromkeys(["punctual.dev/opened", *server.notes])


async def test_a_job_of_which_all_pods_run_or_wait_for_others_is_left_alone():
    started = pod("a-0", "a", gates=[])
    server = Server(started, pod("b-0", "b", gates=[OTHER]), pod("c-0", "c", deletionTimestamp="2030-01-01T00:00:00Z"))
    assert await suspended(server) == []
    assert server.patched == {}


async def test_of_very_many_jobs_some_are_named():
    server = Server(*(pod(f"{n}-0", f"j{n}") for n in range(9)))
    (told,) = await suspended(server)
    assert "9 Jobs suspended" in told
    assert "ns/j4, 4 more." in told


@pytest.mark.parametrize("error", [errors.NotFound("no"), errors.Replaced("another uid")])
async def test_a_job_that_is_gone_needs_nothing(error):
    server = Server(pod("a-0", "a"), pod("b-0", "b"))
    server.fails["a"] = error
    (told,) = await suspended(server)
    assert "1 Job suspended" in told
    assert [*server.patched] == [path("b")]


@pytest.mark.parametrize("error", [errors.Forbidden("a policy"), errors.Invalid("a webhook")])
async def test_a_job_that_cannot_be_suspended_is_named_and_hinders_no_other(error):
    server = Server(pod("a-0", "a"), pod("b-0", "b"))
    server.fails["a"] = error
    refused, done = await suspended(server)
    assert refused == f"The Job ns/a was not suspended, so its pods wait at the gate punctual.dev/chunk: {error}"
    assert "1 Job suspended" in done


async def test_a_server_that_does_not_answer_ends_the_run():
    server = Server(pod("a-0", "a"))
    server.fails["a"] = errors.Unreachable("no answer")
    with pytest.raises(errors.Unreachable):
        await suspended(server)
