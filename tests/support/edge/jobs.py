"""The controller of ordinary Jobs (batch/v1), on the objects of the API server's model.

A Job that is not suspended gets pods, at most `parallelism` at a time: each for an index that has not succeeded, or for
any completion if it is not Indexed. If there are more, those go first that have no node, and of these the newest. A
pod that failed, or went, counts against `backoffLimit`, and has a successor. A Job that is suspended loses its pods.

An image `fails:TIMES-SECONDS` fails so many times, after so many seconds, and then succeeds.
"""

import collections
import copy

import orjson
from batch_bodies import owned_by_job

from edge.apiserver import ENDED, Refused
from edge.kinds import BY_RESOURCE
from edge.virtual import BEGIN
from punctual.kube.cluster.batch_jobs import INDEX
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
        self._succeeded = {}  # indexes that have, or uids of pods, by uid of the Job
        self._lost = collections.Counter()  # pods that went before their end, by uid of the Job
        self._removed = set()  # uids of pods that it has deleted itself
        self._tries = collections.Counter()  # pods that an index has had, by uid of the Job and index
        self._looking = set()
        self._serial = 0
        server.store.written.append(self._hear)
        server.admit.append(self._admit)

    def begin_anew(self):
        """Know of Jobs what their statuses say, as a controller that begins."""
        for memory in (self._failed, self._succeeded, self._lost, self._removed):
            memory.clear()
        for path, job in list(self._server.store.objects.items()):
            if not path.startswith(f"{JOB.resource.rpartition('/')[0]}/namespaces/") or job["kind"] != "Job":
                continue
            status, uid = job.get("status") or {}, job["metadata"]["uid"]
            pods = self._pods(job).values()
            there = {_of(pod) for pod in pods if pod["status"]["phase"] == "Succeeded"}
            if _indexed(job):
                done = set(map(int, filter(None, status.get("completedIndexes", "").split(","))))
            else:  # pods that are gone have no names any more
                done = {f"gone-{n}" for n in range(max(0, status.get("succeeded", 0) - len(there)))}
            self._succeeded[uid] = done | there
            failed = sum(pod["status"]["phase"] == "Failed" for pod in pods)
            self._lost[uid] = max(0, status.get("failed", 0) - failed)
            self._soon(path)

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
                    went = event.change == "DELETED" and event.body["status"]["phase"] not in ENDED
                    self._lost[owner["uid"]] += went and meta["uid"] not in self._removed
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
        done = self._succeeded.setdefault(job["metadata"]["uid"], set())
        done |= {_of(pod) for pod in pods.values() if pod["status"]["phase"] == "Succeeded"}
        active = {at: pod for at, pod in pods.items() if _active(pod)}
        failed = sum(pod["status"]["phase"] == "Failed" for pod in pods.values()) + self._lost[job["metadata"]["uid"]]
        status = {"succeeded": len(done), "failed": failed}
        if _indexed(job):
            status["completedIndexes"] = ",".join(map(str, sorted(done)))
        if begun := (job.get("status") or {}).get("startTime"):
            status["startTime"] = begun
        elif not job["spec"].get("suspend"):
            status["startTime"] = format_time(BEGIN + self._loop.now)
        if len(done) == job["spec"]["completions"]:
            status["conditions"] = [{"type": "Complete", "status": "True"}]
        elif failed > job["spec"].get("backoffLimit", 6):
            said = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
            status["conditions"] = [{"type": "Failed", "status": "True", **said}]
        if job["spec"].get("suspend") or "conditions" in status:
            self._delete(active)
        if (job.get("status") or {}) != status:
            self._server.set(JOB, path, status=status)
        if not job["spec"].get("suspend") and "conditions" not in status:
            self._fill(path, job, pods, active, done)

    def _fill(self, path, job, pods, active, done):
        """Create the pods that are missing, or delete those that are too many."""
        now, waits = BEGIN + self._loop.now, {}
        for pod in pods.values():
            if pod["status"]["phase"] == "Failed":
                until = self._failed.setdefault(pod["metadata"]["uid"], now + BACK_OFF)
                at = _of(pod) if _indexed(job) else None
                waits[at] = max(until, waits.get(at, 0.0))
        room = job["spec"]["parallelism"] - len(active)
        newest = sorted(active.items(), key=lambda one: one[1]["metadata"]["name"].rpartition("-")[2], reverse=True)
        least = sorted(newest, key=lambda one: (bool(one[1]["spec"].get("nodeName")), one[1]["status"]["phase"]))
        self._delete(dict(least[: max(0, -room)]))
        if _indexed(job):
            taken = done | {_of(pod) for pod in active.values()}
            missing = [index for index in range(job["spec"]["completions"]) if index not in taken]
        else:
            missing = [None] * (job["spec"]["completions"] - len(done) - len(active))
        for index in missing:
            if room < 1:
                break
            if (left := waits.get(index, 0.0) - now) > 0:
                self._soon(path, left + 0.01)
                continue
            room -= 1
            self._create(job, index)

    def _delete(self, pods):
        for at, pod in pods.items():
            self._removed.add(pod["metadata"]["uid"])
            self._server.answer("DELETE", at, {}, {}, b"{}")

    def _create(self, job, index):
        meta, template = job["metadata"], copy.deepcopy(job["spec"]["template"])
        self._serial += 1
        self._tries[meta["uid"], index] += 1
        container = template["spec"]["containers"][0]
        if container["image"].startswith("fails:"):
            times, _, seconds = container["image"].removeprefix("fails:").partition("-")
            container["image"] = f"runs:{seconds}-{int(self._tries[meta['uid'], index] <= int(times))}"
        number = {} if index is None else {INDEX: f"{index}"}
        labels = {"batch.kubernetes.io/job-name": meta["name"], "batch.kubernetes.io/controller-uid": meta["uid"]}
        there = template.get("metadata") or {}
        name = f"{meta['name']}{'' if index is None else f'-{index}'}-{self._serial:05d}"
        body = {
            "metadata": {
                "name": name,
                "namespace": meta["namespace"],
                "labels": {**(there.get("labels") or {}), **labels},
                "annotations": {**(there.get("annotations") or {}), **number},
                "ownerReferences": [owned_by_job(meta["name"], meta["uid"])],
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


def _indexed(job):
    return job["spec"].get("completionMode") == "Indexed"


def _active(pod):
    return pod["status"]["phase"] not in ENDED and "deletionTimestamp" not in pod["metadata"]


def _ended(job):
    return any(one["status"] == "True" for one in (job.get("status") or {}).get("conditions") or ())


def _of(pod):
    """Return what a pod completes: an index, or one of any, which its uid stands for."""
    index = pod["metadata"]["annotations"].get(INDEX)
    return pod["metadata"]["uid"] if index is None else int(index)
