"""The ordinary Jobs (batch/v1) that name a pool by the label `punctual.dev/pool`, and their pods that wait at the gate.

Of a Job only what its contract and its course depend on is kept, as the API server has it. Of a pod at the gate its
index is kept: the pod has no node yet and takes nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from punctual.labels import (
    COST_PER_UNIT,
    DEADLINE,
    DEADLINE_TIME,
    ETA,
    GATE,
    MESSAGE,
    OFFER,
    OPENED,
    POOL_LABEL,
    PROFILE,
    SLACK,
    STATE,
)
from punctual.notation.duration import parse_time

ASKED: Final = (DEADLINE, DEADLINE_TIME, COST_PER_UNIT, PROFILE)
"""Annotations with which a user asks."""
SAID: Final = (STATE, ETA, SLACK, OFFER, MESSAGE)
"""Annotations with which the operator answers."""
INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Annotation and label of a pod of an Indexed Job."""
QUEUE: Final = "kueue.x-k8s.io/queue-name"

Json = Mapping[str, Any]


class BatchJob(NamedTuple):
    """What is kept of a Job."""

    uid: str
    namespace: str
    name: str
    pool: str
    created: float
    asked: tuple[tuple[str, str], ...]
    """The annotations of `ASKED` that it has."""
    said: tuple[tuple[str, str], ...]
    """Those of `SAID`."""
    completions: int | None
    parallelism: int
    indexed: bool
    suspended: bool
    suspended_by: str
    """The field manager that has suspended it. Empty: it is not suspended, or nobody is named."""
    opened: bool
    """The operator has let it begin, and has not suspended it since."""
    ended: str
    """Complete or Failed; empty: it goes on."""
    why: str
    """Why it has failed, as its controller says."""
    succeeded: int
    """How many of its pods have, as its controller counts."""
    done: str
    """Its indexes that are completed, such as "0-3,5". Empty: none, or it is not Indexed."""
    deleting: bool
    owner: str
    """Kind of the controller that made it, such as CronJob. Empty: none did."""
    manager: str
    """Another controller of Jobs, or a queue, that it belongs to. Empty: it belongs to none."""
    time_limit: float | None
    """Its activeDeadlineSeconds."""
    template: bytes
    """Its pod template, JSON."""

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class GatedPod(NamedTuple):
    """A pod of a Job that waits at the gate."""

    uid: str
    namespace: str
    name: str
    job: str
    """Uid of its Job."""
    unit: int | None
    """Its completion index. None: its Job is not Indexed."""
    gates: tuple[str, ...]
    """Its other gates."""


def project_job(body: Json) -> BatchJob | None:
    """Return what is kept of a Job's body. None: it names no pool."""
    meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    pool = labels.get(POOL_LABEL)
    if not pool:
        return None
    controller = next((o["kind"] for o in meta.get("ownerReferences") or () if o.get("controller")), "")
    ends = [c for c in status.get("conditions") or () if c["status"] == "True" and c["type"] in {"Complete", "Failed"}]
    end = ends[0] if ends else {}
    return BatchJob(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        pool=pool,
        created=parse_time(meta["creationTimestamp"]),
        asked=_some(notes, ASKED),
        said=_some(notes, SAID),
        completions=spec.get("completions"),
        parallelism=spec.get("parallelism", 1),
        indexed=spec.get("completionMode") == "Indexed",
        suspended=bool(spec.get("suspend")),
        suspended_by=_writer(meta, "suspend") if spec.get("suspend") else "",
        opened=notes.get(OPENED) == meta["uid"],  # a copy of it has another uid
        ended=end.get("type", ""),
        why=f"{end.get('reason', '')}: {end.get('message', '')}",
        succeeded=status.get("succeeded") or 0,
        done=status.get("completedIndexes") or "",
        deleting="deletionTimestamp" in meta,
        owner=controller,
        manager=_manager(spec, labels),
        time_limit=spec.get("activeDeadlineSeconds"),
        template=orjson.dumps(spec["template"], option=orjson.OPT_SORT_KEYS),
    )


def _manager(spec: Json, labels: Json) -> str:
    by = spec.get("managedBy") or ""
    if by and by != "kubernetes.io/job-controller":
        return str(by)
    return f"the queue {labels[QUEUE]} of Kueue" if labels.get(QUEUE) else ""


def _writer(meta: Json, field: str) -> str:
    """Return the field manager that wrote a field of the spec last. Empty: none is named."""
    found = [
        (str(one.get("time") or ""), str(one.get("manager") or ""))
        for one in meta.get("managedFields") or ()
        if f"f:{field}" in (one.get("fieldsV1") or {}).get("f:spec", {})
    ]
    return max(found, default=("", ""))[1]


def _some(notes: Json, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(notes[name])) for name in names if name in notes)


def job_behind(body: Json) -> str:
    """Return the uid of the Job that a pod is of, as its controller says. Empty: it is of none."""
    owners = body["metadata"].get("ownerReferences") or ()
    return next((str(o["uid"]) for o in owners if o.get("controller") and o.get("kind") == "Job"), "")


def project_gated(body: Json) -> GatedPod | None:
    """Return what is kept of a pod's body, if it waits at the gate as a pod of a Job."""
    meta, gates = body["metadata"], [gate["name"] for gate in body["spec"].get("schedulingGates") or ()]
    if GATE not in gates or "deletionTimestamp" in meta:
        return None
    job = job_behind(body)
    if not job:
        return None
    index = (meta.get("annotations") or {}).get(INDEX)
    others = tuple(gate for gate in gates if gate != GATE)
    return GatedPod(meta["uid"], meta["namespace"], meta["name"], job, _index(index), others)


def _index(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) <= 10 else None


class BatchJobs:
    """All such Jobs, and their pods at the gate, by "namespace/name"."""

    def __init__(self) -> None:
        self.by_key: dict[str, BatchJob] = {}
        self._keys: dict[str, str] = {}  # by uid
        self._gated: dict[str, dict[str, GatedPod]] = {}  # by uid of their Job, then key
        self._jobs: dict[str, str] = {}  # of a gated pod's key the uid of its Job

    def observe(self, job: BatchJob, *, gone: bool) -> None:
        """Record the present state of a Job."""
        if gone:
            self.by_key.pop(job.key, None)
            self._keys.pop(job.uid, None)
        else:
            self.by_key[job.key] = job
            self._keys[job.uid] = job.key

    def observe_pod(self, key: str, pod: GatedPod | None) -> str:
        """Record a pod at the gate, or that it is there no longer; return the uid of its Job, if it has one."""
        before = self._jobs.pop(key, "")
        if before:
            pods = self._gated[before]
            del pods[key]
            if not pods:
                del self._gated[before]
        if pod is None:
            return before
        self._jobs[key] = pod.job
        self._gated.setdefault(pod.job, {})[key] = pod
        return pod.job

    def of_uid(self, uid: str) -> BatchJob | None:
        """Return a Job by its uid."""
        return self.by_key.get(self._keys.get(uid, ""))

    def gated(self, job: str) -> list[GatedPod]:
        """Return the pods of a Job (uid) that wait at the gate."""
        return list(self._gated.get(job, {}).values())
