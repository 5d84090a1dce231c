"""The controller of ordinary Jobs (batch/v1), on the objects of the API server's model.

A Job that is not suspended gets pods, at most `parallelism` at a time, each for an index that has not succeeded. A pod
that failed, or went, has a successor after a while. A Job that is suspended loses its pods that run.
"""

import collections
import copy

import orjson

from edge.apiserver import ENDED, Refused
from edge.kinds import BY_RESOURCE
from edge.virtual import BEGIN
from punctual.notation.duration import format_time

JOB, POD = BY_RESOURCE["batch/v1", "jobs"], BY_RESOURCE["v1", "pods"]
LOOK = (0.02, 0.4)
"""Seconds until it has seen a change."""
BACK_OFF = 10.0
"""Seconds until a failed pod has a successor."""


class JobController:
    """It acts in the world's time."""

    def __init__(self, loop, server, random):
        self._loop, self._server, self._random = loop, server, random
        self._failed = {}  # until when a failed pod has no successor, by its uid
        self._looking = set()
        self._serial = 0
        server.store.written.append(self._hear)
        server.admit.append(self._admit)

    def _admit(self, kind, body, before, _dry):
        """Refuse an edit of the template of a Job that is not suspended, or has pods that run."""
        if kind is JOB and before is not None and body["spec"]["template"] != before["spec"]["template"]:
            started = not before["spec"].get("suspend") or "startTime" in (before.get("status") or {})
            if started:
                raise Refused(422, "Invalid", "spec.template: field is immutable")
        return body

    def _hear(self, resource, event):
        meta = event.body["metadata"]
        if resource == JOB.resource:
            self._soon(event.path)
        elif resource == POD.resource:
            for owner in meta.get("ownerReferences") or ():
                if owner["kind"] == "Job":
                    self._soon(f"/apis/batch/v1/namespaces/{meta['namespace']}/jobs/{owner['name']}")

    def _soon(self, path, seconds=None):
        if path not in self._looking:
            self._looking.add(path)
            self._loop.in_world(seconds or self._random.uniform(*LOOK), self._look, path)

    def _look(self, path):
        self._looking.discard(path)
        job = self._server.store.objects.get(path)
        if job is None or "deletionTimestamp" in job["metadata"] or _ended(job):
            return
        pods = self._pods(job)
        active = {at: pod for at, pod in pods.items() if pod["status"]["phase"] not in ENDED}
        if job["spec"].get("suspend"):
            self._delete(active)
            self._status(path, job, {})
        elif (end := self._end_of(job, pods)) is None:
            self._status(path, job, self._started(job, pods))
            self._fill(path, job, pods, active)
        else:
            self._delete(active)
            self._status(path, job, {**self._started(job, pods), "conditions": [{"type": end, "status": "True"}]})

    @staticmethod
    def _end_of(job, pods):
        """Return how a Job has ended; None: it has not."""
        phases = collections.Counter(pod["status"]["phase"] for pod in pods.values())
        if phases["Failed"] > job["spec"].get("backoffLimit", 6):
            return "Failed"
        return "Complete" if len(_done(pods)) == job["spec"]["completions"] else None

    def _started(self, job, pods):
        begun = (job.get("status") or {}).get("startTime") or format_time(BEGIN + self._loop.now)
        return {"startTime": begun, "succeeded": len(_done(pods))}

    def _fill(self, path, job, pods, active):
        """Create pods for the indexes that have none."""
        now, waits = BEGIN + self._loop.now, {}
        for pod in pods.values():
            if pod["status"]["phase"] == "Failed":
                waits[_index(pod)] = self._failed.setdefault(pod["metadata"]["uid"], now + BACK_OFF)
        taken, room = _done(pods) | {_index(pod) for pod in active.values()}, job["spec"]["parallelism"] - len(active)
        for index in range(job["spec"]["completions"]):
            if index in taken or room < 1:
                continue
            if (left := waits.get(index, 0.0) - now) > 0:
                self._soon(path, left + 0.01)
                continue
            room -= 1
            self._create(job, index)

    def _delete(self, pods):
        for at in pods:
            self._server.answer("DELETE", at, {}, {}, b"{}")

    def _create(self, job, index):
        meta, template = job["metadata"], copy.deepcopy(job["spec"]["template"])
        self._serial += 1
        labels = {"batch.kubernetes.io/job-name": meta["name"], "batch.kubernetes.io/controller-uid": meta["uid"]}
        there = template.get("metadata") or {}
        body = {
            "metadata": {
                "name": f"{meta['name']}-{index}-{self._serial:05d}",
                "namespace": meta["namespace"],
                "labels": {**(there.get("labels") or {}), **labels},
                "annotations": {
                    **(there.get("annotations") or {}),
                    "batch.kubernetes.io/job-completion-index": f"{index}",
                },
                "ownerReferences": [
                    {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "name": meta["name"],
                        "uid": meta["uid"],
                        "controller": True,
                    }
                ],
            },
            "spec": template["spec"],
        }
        path = f"/api/v1/namespaces/{meta['namespace']}/pods"
        self._server.answer("POST", path, {}, {}, orjson.dumps(body))

    def _pods(self, job):
        return {
            at: body
            for at, body in self._server.store.objects.items()
            if "/pods/" in at
            and any(owner["uid"] == job["metadata"]["uid"] for owner in body["metadata"].get("ownerReferences") or ())
        }

    def _status(self, path, job, status):
        if (job.get("status") or {}) != status:
            self._server.set(JOB, path, status=status)


def _done(pods):
    """Return the indexes that have succeeded."""
    return {_index(pod) for pod in pods.values() if pod["status"]["phase"] == "Succeeded"}


def _ended(job):
    return any(one["status"] == "True" for one in (job.get("status") or {}).get("conditions") or ())


def _index(pod):
    return int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])
