"""Reads the state of a pod's body.

The informer sees every pod of the cluster and stores only the values that decisions need: of chunk pods a
:class:`~punctual.scheduling.model.events.PodObserved`, of other pods the capacity that they request.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from punctual.fetch import CHANGED, LONGEST, UNAVAILABLE
from punctual.kube.cluster.batch_jobs import DISRUPTION
from punctual.kube.cluster.pod_manifest import MOST_BYTES, STEP, extended_of, message_limit
from punctual.kube.cluster.pod_needs import host_ports
from punctual.kube.cluster.requests import requested
from punctual.labels import ATTEMPT, BEGIN, END, JOB_UID_LABEL, KIND_LABEL, OFFERED_END, PROCESSOR, TURN, WORK
from punctual.notation.duration import parse_time
from punctual.scheduling.model.events import OUT_OF_MEMORY, OVER, Helper, Outcome, PodObserved, PodPhase
from punctual.scheduling.model.job import InputVersion, Kind, Transfer
from punctual.scheduling.model.node_rules import HostPort
from punctual.scheduling.model.pod_reasons import (
    NO_ROOM,
    NO_SCHEDULER,
    NO_VOLUME,
    NOMINATED,
    NOT_PLACED,
    OUT_OF,
    OUT_OF_EXTENDED,
    UNSEEN,
    names_capacity,
)
from punctual.scheduling.model.resources import NOTHING, Resources

DEFAULT_SCHEDULER: Final = "default-scheduler"
MOST_SECONDS: Final = 10.0**9
_DIGITS = 19  # of the highest number of units; int() raises an error for thousands of digits


class ForeignPod(NamedTuple):
    """A pod on a node, with what it requests there. It is foreign unless a Pool counts it (`Inventory`)."""

    uid: str
    node: str
    requests: Resources
    priority: int = 0
    since: float = 0.0
    """The time of its binding to the node, in whole seconds of the API server's clock."""
    ports: frozenset[HostPort] = frozenset()
    """The ports that it takes on its node."""


def project_pod(body: Mapping[str, Any]) -> PodObserved | ForeignPod | None:
    """Return the stored state of a pod: its claim to be a chunk pod, the capacity of another pod, or nothing."""
    meta = body["metadata"]
    uid = (meta.get("labels") or {}).get(JOB_UID_LABEL)
    # the claim proves nothing, because anyone with the right to create pods can write it (`is_chunk_of`)
    if uid and any(o.get("uid") == uid or o.get("kind") == "Job" for o in meta.get("ownerReferences") or ()):
        return _ours(meta, body["spec"], body.get("status") or {}, uid)
    return foreign_pod(body)


def _int(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) <= _DIGITS else 0


def _on_its_node(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Resources:
    return requested(spec, status) if spec.get("nodeName") else NOTHING


def _ours(meta: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any], job: str) -> PodObserved:
    notes = meta.get("annotations") or {}
    work = notes.get(WORK) or spec["containers"][0]["name"]  # an earlier version has not noted it
    found = status.get("containerStatuses") or ()
    state = next((s.get("state") or {} for s in found if s["name"] == work), {})
    phase = status.get("phase") or "Pending"
    deleting = meta.get("deletionTimestamp") is not None
    disrupted = any(c["type"] == DISRUPTION and c["status"] == "True" for c in status.get("conditions") or ())
    from_outside = deleting or disrupted or bool(status.get("reason"))
    of_job = any(o.get("kind") == "Job" for o in meta.get("ownerReferences") or ())
    last = _last(state, work, status, helpers=phase == "Failed" and (from_outside or of_job))
    began = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    waiting = {} if last else _waiting(status, state)
    ended = last.state if last else {}
    reason, said = _reason(status, ended or waiting, spec, extended_of(notes.get(PROCESSOR, "")))
    message, limit = (ended or waiting).get("message") or "", message_limit(spec)
    if not status.get("reason"):
        message, said = message or said, ""
    outcome = _outcome(phase, state.get("terminated"), from_outside=from_outside)
    helpers = _helpers(work, found) if outcome else ()
    if of_job:
        if "Succeeded" in {outcome, phase}:
            message = ""  # what a pod of an ordinary Job leaves is no result of a range
        outcome, helpers = None, () if phase in OVER else helpers  # its controller counts the pod, not the work
    elif phase not in OVER and all(helper.exit_code is not None for helper in helpers):
        # nothing keeps the pod: its phase follows at once, and people see a pod that runs until then
        outcome, helpers = None, ()
    return PodObserved(
        name=meta["name"],
        uid=meta["uid"],
        namespace=meta["namespace"],
        job=job,
        kind=cast(Kind, meta["labels"].get(KIND_LABEL, "Chunk")),
        begin=_int(notes.get(BEGIN)),
        end=_int(notes.get(END)),
        attempt=_int(notes.get(ATTEMPT)),
        node=spec.get("nodeName") or _meant_for(spec),
        phase=cast(PodPhase, phase),
        created=parse_time(meta["creationTimestamp"]),
        started=parse_time(began) if began else None,
        finished=parse_time(ended["finishedAt"]) if ended.get("finishedAt") else None,
        exit_code=ended.get("exitCode"),
        container=last.container if last else "",
        reason=reason,
        disrupted=disrupted,
        message=message,
        said=said,
        ended=outcome,
        helpers=helpers,
        preparing=any(_begun(s) for s in status.get("initContainerStatuses") or ()),
        grace=_grace(spec),
        cut=limit if last and len(message.encode()) >= limit else None,
        deleting=deleting,
        offered=bool(notes.get(OFFERED_END)),
        turn=bool(notes.get(TURN)),
        requests=_on_its_node(spec, status),
        **_fetched(status),
    )


class _Ended(NamedTuple):
    """The container that tells how the work has ended, and its ``terminated`` state."""

    container: str
    state: Mapping[str, Any]


def _last(work: Mapping[str, Any], name: str, status: Mapping[str, Any], *, helpers: bool) -> _Ended | None:
    """Return how the work has ended: its own container's end, or that of an init container that failed before it.

    ``helpers``: something outside has ended the pod, or its Job's controller counts all containers. So if the work has
    not failed itself, a failed container beside it tells more.
    """
    own = _Ended(name, work["terminated"]) if work.get("terminated") else None
    if own is None:
        own = _failure(status.get("initContainerStatuses"))
    if helpers and not (own and own.state.get("exitCode")):
        return _failure(status.get("containerStatuses")) or own
    return own


def _outcome(phase: str, work: Mapping[str, Any] | None, *, from_outside: bool) -> Outcome | None:
    """Return how the work has ended; None: it has not, or ends as its pod does.

    A container that exits with 0 because something outside ends the pod may not have done its units.
    """
    if work is None or (from_outside and phase != "Succeeded"):
        return None
    return "Failed" if work.get("exitCode") else "Succeeded"


def _helpers(work: str, statuses: Sequence[Mapping[str, Any]]) -> tuple[Helper, ...]:
    """Return the containers beside the work's that have not ended, or not well."""
    found = []
    for status in statuses:
        ended = (status.get("state") or {}).get("terminated") or {}
        helper = Helper(status["name"], ended.get("exitCode"), ended.get("reason") or "")
        if helper.name != work and (helper.exit_code != 0 or helper.reason == OUT_OF_MEMORY):
            found.append(helper)
    return tuple(found)


def _begun(status: Mapping[str, Any]) -> bool:
    state = status.get("state") or {}
    return bool(state.get("running") or state.get("terminated"))


def _grace(spec: Mapping[str, Any]) -> float:
    seconds = spec.get("terminationGracePeriodSeconds")
    return 30.0 if seconds is None else float(max(1, seconds))


def _fetched(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether the input step has ended successfully, and its reported measurements and version.

    The user may choose the step's image, so impossible values are ignored.
    """
    for init in status.get("initContainerStatuses") or ():
        ended = (init.get("state") or {}).get("terminated") if init["name"] == STEP else None
        if ended and ended.get("exitCode") == 0:
            told = _told(ended.get("message") or "")
            return {"fetched": True, "transfer": _transfer(told), "input": _version(told)}
        if ended and ended.get("exitCode") == CHANGED:
            return {"input_changed": True}
        if ended and ended.get("exitCode") == UNAVAILABLE:
            return {"input_unavailable": True}
    return {}


def _told(message: str) -> Mapping[str, Any]:
    """Read the message of an input step."""
    try:
        told = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _version(told: Mapping[str, Any]) -> InputVersion | None:
    size, validator = told.get("size"), told.get("validator")
    if type(size) is not int or not 0 <= size < MOST_BYTES:
        return None
    if not isinstance(validator, str) or not re.fullmatch(f"[ -~]{{0,{LONGEST}}}", validator):
        return None
    return InputVersion(size, validator)


def _transfer(told: Mapping[str, Any]) -> Transfer | None:
    try:
        size, waited, opening, seconds = (told[key] for key in ("bytes", "waited", "opening", "seconds"))
    except KeyError:
        return None
    times = (waited, opening, seconds)
    if type(size) is not int or not 0 <= size < MOST_BYTES or any(type(t) not in (int, float) for t in times):
        return None
    if not (0 <= opening <= seconds <= MOST_SECONDS and 0 <= waited <= MOST_SECONDS):
        return None
    return Transfer(size, float(opening), float(seconds), float(waited))


def _failure(containers: Sequence[Mapping[str, Any]] | None) -> _Ended | None:
    """Return the end of the first failed container."""
    for container in containers or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended and ended.get("exitCode"):
            return _Ended(container["name"], ended)
    return None


def _meant_for(spec: Mapping[str, Any]) -> str:
    try:
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        return str(terms[0]["matchFields"][-1]["values"][0])
    except (KeyError, IndexError):
        return ""


def _reason(
    status: Mapping[str, Any], state: Mapping[str, Any], spec: Mapping[str, Any], extended: Collection[str]
) -> tuple[str, str]:
    """Return why the pod has ended or does not run, and the cluster's message about that, if it is not its container's.

    The pod's own reason comes before its container's. ``extended``: extended resources of its processor.
    """
    if reason := str(status.get("reason") or ""):
        lacking = reason.removeprefix(OUT_OF) in extended
        return OUT_OF_EXTENDED if lacking else reason, str(status.get("message") or "")
    return (str(state.get("reason") or ""), "") if state else _unplaced(status, spec, extended)


def _waiting(status: Mapping[str, Any], state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the ``waiting`` state of the first init container that waits, otherwise that of the main container.

    If the input step lacks its Secret, the message names the field.
    """
    for init in status.get("initContainerStatuses") or ():
        if waiting := (init.get("state") or {}).get("waiting"):
            said = waiting.get("message") or ""
            if init["name"] == STEP and "secret" in said.lower():
                return {**waiting, "message": f"{said} (spec.input.http.headers)"}
            return cast(Mapping[str, Any], waiting)
    return state.get("waiting") or {}


def _unplaced(status: Mapping[str, Any], spec: Mapping[str, Any], extended: Collection[str]) -> tuple[str, str]:
    """Return why no node was chosen, and the scheduler's message; empty if one was chosen."""
    scheduled = next((c for c in status.get("conditions") or () if c["type"] == "PodScheduled"), None)
    if scheduled is None:
        if spec.get("nodeName") or (status.get("phase") or "Pending") != "Pending":
            return "", ""
        name = spec.get("schedulerName") or DEFAULT_SCHEDULER
        return UNSEEN if name == DEFAULT_SCHEDULER else NO_SCHEDULER, f"no scheduler named {name} has looked at it"
    if scheduled["status"] != "False":
        return "", ""
    reason, said = str(scheduled.get("reason") or ""), str(scheduled.get("message") or "")
    # kube-scheduler has preempted other pods and reserves their capacity for this one
    if status.get("nominatedNodeName"):
        return NOMINATED, said
    if reason != NO_ROOM or names_capacity(said, extended):
        return reason, said
    # a volume claim failed: the node is not the cause and need not be avoided
    return (NO_VOLUME if "persistentvolumeclaim" in said.lower() else NOT_PLACED), said


def foreign_pod(body: Mapping[str, Any], *, requests: Resources | None = None) -> ForeignPod | None:
    """Return the capacity that a pod takes of its node, or None if it takes none.

    ``requests``: what it requests, if that was read already.
    """
    spec, status = body["spec"], body.get("status") or {}
    node = spec.get("nodeName")
    if not node or status.get("phase") in OVER:
        return None
    asked = requested(spec, status) if requests is None else requests
    priority, ports = spec.get("priority") or 0, frozenset(host_ports(spec))
    return ForeignPod(body["metadata"]["uid"], node, asked, priority, _bound(body), ports)


def _bound(body: Mapping[str, Any]) -> float:
    for condition in (body.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "True" and "lastTransitionTime" in condition:
            return parse_time(condition["lastTransitionTime"])
    created = body["metadata"].get("creationTimestamp")
    return parse_time(created) if created else 0.0
