"""What a Job with a deadline must be, and the DivisibleJob that holds its promise. Pure functions."""

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from punctual import reasons
from punctual.errors import UserError
from punctual.kube.api.base import API_VERSION
from punctual.kube.api.fields import MAX_PROCESSORS
from punctual.kube.cluster.batch_jobs import BatchJob, Parallelism, job_reference
from punctual.kube.cluster.pod_manifest import toleration
from punctual.kube.cluster.requests import is_device, requested
from punctual.kube.gate.pod_size import wrong_job_size
from punctual.kube.kinds.batch import parallelism
from punctual.labels import COST_PER_UNIT, DEADLINE, DEADLINE_TIME, GATE, OPENED, PROFILE, START_ANYWAY
from punctual.notation.duration import format_time, parse_duration, parse_time
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.model.resources import Resources

RETRIES: Final = 1000
"""Its controller counts failures, so the DivisibleJob does not."""
NEAR: Final = 5.0
"""Seconds by which the question for a Job with a time limit may come late."""
FOREIGN_OWNERS: Final = frozenset({"JobSet"})

Json = dict[str, Any]


class Refusal(NamedTuple):
    """Why a Job cannot be asked for, and what would be right."""

    reason: str
    message: str


def refusal(job: BatchJob, share: Resources | None) -> Refusal | None:
    """Return what is wrong with a Job. ``share``: what a pod may request of a processor; None: there is no pool yet."""
    for check in CHECKS:
        if text := check(job):
            return Refusal(reasons.INVALID_SPEC, text)
    try:
        due(job)
    except UserError as error:
        return Refusal(error.reason, error.message)
    return None if share is None else _size(job, share)


def due(job: BatchJob) -> float:
    """Return its deadline. Raises UserError."""
    asked = dict(job.asked)
    for name, read in ((DEADLINE, parse_duration), (DEADLINE_TIME, parse_time)):
        if name in asked:
            try:
                found = read(asked[name])
            except ValueError as error:
                raise UserError(reasons.INVALID_SPEC, f"metadata.annotations[{name}]: {error}") from None
            return job.created + found if name == DEADLINE else found
    raise UserError(reasons.INVALID_SPEC, f"metadata.annotations: set {DEADLINE}, such as 45m, or {DEADLINE_TIME}")


def bounded(job: BatchJob, start: float) -> float:
    """Return by when a Job that starts then must be done: by its deadline, and before its controller ends it."""
    return due(job) if job.time_limit is None else min(due(job), start + job.time_limit)


def gated(job: BatchJob) -> bool:
    """Return whether its pods wait at the gate."""
    gates = orjson.loads(job.template)["spec"].get("schedulingGates") or ()
    return any(gate.get("name") == GATE for gate in gates)


def opening(job: BatchJob, chunks: int) -> Json:
    """Return the patch that starts a Job with so many chunks: its pods tolerate the pool's taint, and are gated."""
    spec = orjson.loads(job.template)["spec"]
    wanted = _added(job.pool)
    # what is there already stays as it is: the template of a Job that has begun once cannot change
    lists = {field: spec.get(field) or [] for field in wanted}
    lists = {field: there if wanted[field] in there else [*there, wanted[field]] for field, there in lists.items()}
    patch = parallelism.patch(job.uid, job.parallelism, parallelism.followed(job.parallelism, chunks))
    return _with(patch, opened=job.uid, suspend=False, template={"spec": lists})


def closing(uid: str, there: Parallelism) -> Json:
    """Return the patch that suspends a Job (uid) until its next promise. Its controller ends its pods."""
    return _with(parallelism.patch(uid, there, parallelism.restored(there)), opened=None, suspend=True)


def _with(patch: Json, *, opened: str | None, **spec: Any) -> Json:
    meta = {**patch["metadata"], "annotations": {**patch["metadata"]["annotations"], OPENED: opened}}
    return {"metadata": meta, "spec": {**patch["spec"], **spec}}


def divisible_job(job: BatchJob, now: float) -> Json:
    """Return the DivisibleJob that holds the promise of a Job without a flaw."""
    asked, template = dict(job.asked), orjson.loads(job.template)
    spec: Json = {
        "pool": job.pool,
        "units": job.completions if job.indexed or job.completions is None else job.completions - job.succeeded,
        "deadlineTime": format_time(bounded(job, now if job.started is None else job.started)),
        "processors": {"max": _most(job)},
        "chunkRetries": RETRIES,
        "jobRef": {"name": job.name, "uid": job.uid},
        "template": _without_processor(_unopened(template, job.pool)),
    }
    if COST_PER_UNIT in asked:
        spec["cost"] = {"perUnit": asked[COST_PER_UNIT]}
    elif PROFILE in asked:
        spec["profile"] = asked[PROFILE]
    if (anyway := _on_refusal(job)) != "Stop":
        spec["onRefusal"] = anyway
    owner = job_reference(job.name, job.uid)
    meta = {"name": job.name, "namespace": job.namespace, "ownerReferences": [owner]}
    return {"apiVersion": API_VERSION, "kind": "DivisibleJob", "metadata": meta, "spec": spec}


def _on_refusal(job: BatchJob) -> str:
    return "Continue" if dict(job.asked).get(START_ANYWAY) == "true" else "Stop"


def _most(job: BatchJob) -> int:
    return min(job.parallelism.asked, MAX_PROCESSORS)


def done(job: BatchJob, units: int) -> Ranges:
    """Return the units of its DivisibleJob that a Job has done for certain."""
    if job.ended == "Complete":  # with its successPolicy, some have not run
        return Ranges.of((0, units))
    if not job.indexed or job.completions is None:
        return Ranges()
    parts = (part.partition("-") for part in job.done.split(",") if part)
    return Ranges.of(*((int(first), int(last or first) + 1) for first, _, last in parts)) & Ranges.of((0, units))


def edited(job: BatchJob, spec: Mapping[str, Any], asked_at: float, *, refused: bool) -> Json:
    """Return what a Job asks for that the spec of its DivisibleJob does not say yet. A flawed edit asks for nothing.

    ``asked_at``: when the DivisibleJob was made. ``refused``: the Job is suspended for that, and not by its user.
    """
    wanted: Json = {}
    if not any(check(job) for check in CHECKS):
        with contextlib.suppress(UserError):
            deadline = bounded(job, asked_at if job.started is None else job.started)
            wanted = {"deadlineTime": format_time(deadline), "processors": {"max": _most(job)}}
            wanted["onRefusal"] = _on_refusal(job)
            if job.indexed:
                wanted["units"] = job.completions
            if job.time_limit is not None and job.started is None and (job.opened or _near(spec, deadline)):
                del wanted["deadlineTime"]  # its controller has yet to say when it began
    if job.opened and not refused:
        wanted["suspend"] = job.suspended
    there = {"suspend": False, "onRefusal": "Stop", **spec}
    return {field: value for field, value in wanted.items() if _differs(there.get(field), value)}


def _near(spec: Mapping[str, Any], deadline: float) -> bool:
    """Return whether a DivisibleJob has this deadline, or one that is a little off: it is made after the question."""
    return "deadlineTime" in spec and abs(deadline - parse_time(spec["deadlineTime"])) < NEAR


def _differs(there: Any, wanted: Any) -> bool:
    """Return whether a field is to be changed; the API server has added defaults to an object."""
    if isinstance(wanted, dict):
        return not isinstance(there, dict) or any(there.get(name) != value for name, value in wanted.items())
    return bool(there != wanted)


def _added(pool: str) -> Json:
    """Return what `opening` adds to lists of a pod's spec, by field."""
    return {"schedulingGates": {"name": GATE}, "tolerations": toleration(pool)}


def _unopened(template: Mapping[str, Any], pool: str) -> Json:
    """Return a pod template without what `opening` has put into it."""
    ours = _added(pool)
    left = {field: [one for one in template["spec"].get(field) or () if one != ours[field]] for field in ours}
    spec = {field: value for field, value in template["spec"].items() if field not in ours}
    return {**template, "spec": spec | {field: value for field, value in left.items() if value}}


def _without_processor(template: Mapping[str, Any]) -> Json:
    """Return a pod template as a DivisibleJob may have it: a processor stands for its CPU and devices."""

    def part(one: Mapping[str, Any]) -> Json:
        resources = one.get("resources") or {}
        left = {
            field: {
                name: amount
                for name, amount in (resources.get(field) or {}).items()
                if name != "cpu" and not is_device(name)
            }
            for field in ("requests", "limits")
        }
        return {**one, "resources": {field: amounts for field, amounts in left.items() if amounts}}

    spec = {**template["spec"], "restartPolicy": "Never"}
    if spec.get("resources"):
        spec = part(spec)
    for field in ("initContainers", "containers"):
        if spec.get(field):
            spec[field] = [part(container) for container in spec[field]]
    meta = template.get("metadata") or {}
    kept = {field: meta[field] for field in ("labels", "annotations") if meta.get(field)}
    return {"metadata": kept, "spec": spec}


# what may be wrong


def _deadline(job: BatchJob) -> str:
    names = [name for name, _ in job.asked]
    if DEADLINE in names and DEADLINE_TIME in names:
        return f"metadata.annotations: set {DEADLINE} or {DEADLINE_TIME}, not both"
    if job.owner == "CronJob" and DEADLINE_TIME in names:
        return f"metadata.annotations[{DEADLINE_TIME}]: each Job of a CronJob would have the same: set {DEADLINE}"
    return ""


def _cost(job: BatchJob) -> str:
    asked = dict(job.asked)
    if COST_PER_UNIT not in asked:
        return ""
    if PROFILE in asked:
        return f"metadata.annotations: set {COST_PER_UNIT} or {PROFILE}, not both"
    try:
        found = parse_duration(asked[COST_PER_UNIT])
    except ValueError as error:
        return f"metadata.annotations[{COST_PER_UNIT}]: {error}"
    return "" if found else f"metadata.annotations[{COST_PER_UNIT}] is 0: write how long a pod works, such as 20s"


def limited(job: BatchJob, asked_at: float, earliest: float | None) -> str:
    """Return how `activeDeadlineSeconds` ends a Job before its deadline, and what would be right. Empty: it does not.

    ``earliest``: seconds from ``asked_at``, when its DivisibleJob was made, to the deadline that would be promised.
    """
    with contextlib.suppress(UserError):
        if job.time_limit is not None and asked_at + job.time_limit < due(job):
            text = f"spec.activeDeadlineSeconds: {job.time_limit:g} ends the Job before its deadline"
            return text if earliest is None else f"{text}: set {math.ceil(earliest)} or more"
    return ""


def _start_anyway(job: BatchJob) -> str:
    said = dict(job.asked).get(START_ANYWAY, "false")
    if said in {"true", "false"}:
        return ""
    return f"metadata.annotations[{START_ANYWAY}] is {said[:40]!r}: write true, to run without a promise, or false"


def foreign(job: BatchJob) -> str:
    """Return what is wrong with a Job that another controller starts."""
    if job.owner in FOREIGN_OWNERS:
        return f"it belongs to a {job.owner}, which starts its Jobs itself: remove the label punctual.dev/pool"
    if job.manager:
        return f"it belongs to {job.manager}, which starts it: remove that, or the label punctual.dev/pool"
    return ""


def _counts(job: BatchJob) -> str:
    if not job.completions:
        return "spec.completions: set how many pods have to succeed: each is a unit of the promise"
    if job.parallelism.asked < 1:
        return "spec.parallelism is 0, so no pod would run: set 1 or more"
    return ""


def _size(job: BatchJob, share: Resources) -> Refusal | None:
    """Return what is wrong with the size of its pods, with both numbers."""
    found = wrong_job_size(requested(orjson.loads(job.template)["spec"]), share)
    return None if found is None else Refusal(*found)


CHECKS: Final[tuple[Callable[[BatchJob], str], ...]] = (foreign, _deadline, _cost, _start_anyway, _counts)
