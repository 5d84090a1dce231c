"""The ordinary Jobs (batch/v1) that name a pool by the label `punctual.dev/pool`, and their pods that wait at the gate.

Of a Job only what its contract and its course depend on is kept, as the API server has it. Of a pod at the gate its
index is kept: the pod has no node yet and takes nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

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
    PARALLELISM,
    PARALLELISM_WRITTEN,
    POOL_LABEL,
    PROFILE,
    SLACK,
    START_ANYWAY,
    STATE,
)
from punctual.notation.duration import parse_time
from punctual.scheduling.model.events import PodObserved

ASKED: Final = (DEADLINE, DEADLINE_TIME, COST_PER_UNIT, PROFILE, START_ANYWAY)
"""Annotations with which a user asks."""
SAID: Final = (STATE, ETA, SLACK, OFFER, MESSAGE)
"""Annotations with which the operator answers."""
INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Annotation and label of a pod of an Indexed Job."""
NAMING: Final = frozenset(
    {
        "controller-uid",
        "job-name",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-name",
    }
)
"""Labels of a Job's template that are different for each Job."""
DISRUPTION: Final = "DisruptionTarget"
QUEUE: Final = "kueue.x-k8s.io/queue-name"

Json = Mapping[str, Any]
Pod = TypeVar("Pod")


class Parallelism(NamedTuple):
    """A Job's `spec.parallelism`, which has two writers: its user, and the operator, which allows fewer pods.

    Another number than all that are noted is an edit by its user. Where another manager, such as a GitOps tool, has put
    the user's number back, it stays, because two managers that overwrite each other would go on for ever. A tool may
    also write back what it has read a moment before, so the operator's last numbers are noted.
    """

    there: int
    noted: int | None = None
    """The user's, as noted when the operator wrote another one. None: it is there."""
    written: tuple[int, ...] = ()
    """What the operator wrote last, the newest first."""

    @classmethod
    def of(cls, body: Json) -> "Parallelism":
        """Return that of a Job's body."""
        notes = body["metadata"].get("annotations") or {}
        written = (_index(number) for number in (notes.get(PARALLELISM_WRITTEN) or "").split(","))
        known = tuple(number for number in written if number is not None)
        return cls(body["spec"].get("parallelism", 1), _index(notes.get(PARALLELISM)), known)

    @property
    def asked(self) -> int:
        """The user's."""
        return self.noted if self.noted is not None and self.there in self.written else self.there

    @property
    def put_back(self) -> bool:
        """Whether another manager has put the user's number back."""
        return self.there == self.noted and self.there not in self.written


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
    parallelism: Parallelism
    indexed: bool
    suspended: bool
    suspended_by: str
    """The field manager that has suspended it. Empty: it is not suspended, or none is named."""
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
    started: float | None
    """When its controller began to count its `activeDeadlineSeconds`. None: it is suspended, or not looked at yet."""
    time_limit: float | None
    """Its activeDeadlineSeconds."""
    counts_lost: bool
    """A pod that is lost with its node counts against its backoffLimit."""
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
        parallelism=Parallelism.of(body),
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
        started=parse_time(status["startTime"]) if status.get("startTime") else None,
        time_limit=spec.get("activeDeadlineSeconds"),
        counts_lost=not _ignores_disruption(spec.get("podFailurePolicy") or {}),
        template=orjson.dumps(spec["template"], option=orjson.OPT_SORT_KEYS),
    )


def _manager(spec: Json, labels: Json) -> str:
    by = spec.get("managedBy") or ""
    if by and by != "kubernetes.io/job-controller":
        return str(by)
    return f"the queue {labels[QUEUE]} of Kueue" if labels.get(QUEUE) else ""


def _ignores_disruption(policy: Json) -> bool:
    rules = (rule for rule in policy.get("rules") or () if rule.get("action") == "Ignore")
    return any(one.get("type") == DISRUPTION for rule in rules for one in rule.get("onPodConditions") or ())


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


def nameless(template: Json) -> Json:
    """Return the pod template of a Job without the labels that the API server gives it: they name this one Job."""
    meta = template.get("metadata") or {}
    labels = {label: value for label, value in (meta.get("labels") or {}).items() if label not in NAMING}
    return {**template, "metadata": {**meta, "labels": labels}}


def job_reference(name: str, uid: str) -> dict[str, Any]:
    """Return the owner reference to a Job."""
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}


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


class _ByJob(Generic[Pod]):
    """Pods by their Job (uid)."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, Pod]] = {}  # by Job, then "namespace/name"
        self._jobs: dict[str, str] = {}

    def of(self, job: str) -> list[Pod]:
        """Return those of a Job."""
        return list(self._pods.get(job, {}).values())

    def put(self, key: str, job: str, pod: Pod | None) -> str:
        """Record a pod, or that it is there no longer (None); return its Job, if it has one."""
        before = self._jobs.pop(key, "")
        if before:
            pods = self._pods[before]
            del pods[key]
            if not pods:
                del self._pods[before]
        if pod is None:
            return before
        self._jobs[key] = job
        self._pods.setdefault(job, {})[key] = pod
        return job


class BatchJobs:
    """All such Jobs, by "namespace/name", and their pods."""

    def __init__(self) -> None:
        self.by_key: dict[str, BatchJob] = {}
        self._keys: dict[str, str] = {}  # by uid
        self._gated: _ByJob[GatedPod] = _ByJob()
        self._started: _ByJob[PodObserved] = _ByJob()

    def observe(self, job: BatchJob, *, gone: bool) -> None:
        """Record the present state of a Job."""
        if gone:
            self.by_key.pop(job.key, None)
            self._keys.pop(job.uid, None)
        else:
            self.by_key[job.key] = job
            self._keys[job.uid] = job.key

    def observe_gated(self, key: str, pod: GatedPod | None) -> str:
        """Record a pod at the gate, or that it is there no longer; return the uid of its Job, if it has one."""
        return self._gated.put(key, pod.job if pod else "", pod)

    def observe_started(self, key: str, job: str, pod: PodObserved | None) -> None:
        """Record a pod of a Job (uid) that has lost the gate, or that it is there no longer, or has ended."""
        self._started.put(key, job, pod if pod and job and not pod.over else None)

    def of_uid(self, uid: str) -> BatchJob | None:
        """Return a Job by its uid."""
        return self.by_key.get(self._keys.get(uid, ""))

    def gated(self, job: str) -> list[GatedPod]:
        """Return the pods of a Job (uid) that wait at the gate."""
        return self._gated.of(job)

    def started(self, job: str) -> list[PodObserved]:
        """Return the pods of a Job (uid) that have lost the gate and not ended, for whichever promise they began."""
        return self._started.of(job)
