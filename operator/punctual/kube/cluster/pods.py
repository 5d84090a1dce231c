"""Builds the pod of a chunk, and reads the state of a pod's body.

Building: a job's template becomes the pod of one chunk. Its name is derived from job, kind, begin and attempt, so a
second create is a 409 and not a second pod. It requests one processor on one node, and kube-scheduler still
decides whether it fits. Progress goes through an emptyDir that the node's agent reads from outside, and offers arrive
through a downward-API volume. Neither needs a token or the network. If chunks have an input, the input step runs before
the template's containers. Another annotation in the downward-API volume gives it the transfer turn. It reports its
measurements in its termination message.

Reading: the informer sees every pod of the cluster and stores only the values that decisions need: of chunk pods a
:class:`~punctual.scheduling.model.events.PodObserved`, of other pods the capacity that they request.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple, cast

from punctual.fetch import CHANGED, LONGEST, UNAVAILABLE
from punctual.kube.fit.pod_needs import host_ports
from punctual.kube.fit.requests import beside, names_memory, requested
from punctual.kube.format.duration import format_time, parse_duration, parse_time
from punctual.kube.format.names import LONGEST_LABEL, LONGEST_NAME, shorten, with_digest
from punctual.kube.format.quantity import format_bytes, format_cores, parse_quantity
from punctual.kube.known.jobs import Owner
from punctual.scheduling.model.events import OUT_OF_MEMORY, OVER, Helper, Outcome, PodObserved, PodPhase
from punctual.scheduling.model.job import Chunk, InputVersion, Kind, Transfer
from punctual.scheduling.model.node_rules import HostPort
from punctual.scheduling.model.pod_reasons import (
    NO_ROOM,
    NO_SCHEDULER,
    NO_VOLUME,
    NOMINATED,
    NOT_PLACED,
    UNSEEN,
    names_capacity,
)
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.resources import NOTHING, Resources

GROUP: Final = "punctual.dev"
POOL_LABEL: Final = f"{GROUP}/pool"
JOB_LABEL: Final = f"{GROUP}/job"
JOB_UID_LABEL: Final = f"{GROUP}/job-uid"
KIND_LABEL: Final = f"{GROUP}/kind"
BEGIN: Final = f"{GROUP}/begin"
END: Final = f"{GROUP}/end"
ATTEMPT: Final = f"{GROUP}/attempt"
EPOCH: Final = f"{GROUP}/epoch"
WORK: Final = f"{GROUP}/work"
"""Annotation with the name of the container that does the work: the template's first. A webhook may put others before
it, so the order of a pod's containers tells nothing."""
OFFERED_END: Final = f"{GROUP}/offered-end"
PLACEHOLDER: Final = f"{GROUP}/placeholder-of"
"""Label of a placeholder: uid of its pool."""
PROCESSOR: Final = f"{GROUP}/processor"
"""Annotation of a placeholder: the size of its processor."""
TURN: Final = f"{GROUP}/fetch"

FOLDER: Final = "/punctual"
OFFERS: Final = "/etc/punctual"
RESULTS: Final = "/punctual-results"
INPUT: Final = "/punctual-input"
SOURCE: Final = "/punctual-source"
STEP: Final = "punctual-input"
"""Name of the init container that fetches, and of the volume with the fetched data."""
IMAGE: Final = "punctual"
UNPRIVILEGED: Final = 65532
"""The user of the operator's image."""
VOLUME: Final = "punctual"
"""The agent finds the volume by this name: ``<pods>/<uid>/volumes/kubernetes.io~empty-dir/punctual``."""

MOST_BYTES: Final = 2**53
_MESSAGE: Final = 4096
"""The kubelet reads at most the last so many bytes of a container's termination message, from version 1.0 on."""
_MESSAGES: Final = 12288
"""The kubelet passes on so many bytes for all containers of a pod: of each message the first ones, an equal share."""
MOST_SECONDS: Final = 10.0**9
LEAST_CPU: Final = 0.001
"""Cores that the work requests at least, whatever the other containers leave."""
LEAST_MEMORY: Final = 2**20
_DIGITS = 19  # of the highest number of units; int() raises an error for thousands of digits
RESULTS_SUFFIX: Final = "-results"
DEFAULT_SCHEDULER: Final = "default-scheduler"
_POD_NAME = 53  # a pod's name is a hostname too, which has at most 63 characters


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


class InputStep(NamedTuple):
    """The settings of a chunk's input step."""

    asked: Mapping[str, Any]
    """The job's ``spec.input``."""
    image: str
    patience: float
    """Seconds without a byte after which the step fails."""
    version: InputVersion | None = None
    """The only version that it may fetch. None: no chunk has read one yet."""

    @classmethod
    def of(cls, spec: Mapping[str, Any], *, image: str, version: InputVersion | None = None) -> "InputStep | None":
        """Return the settings from a job's spec. ``image`` is the default image."""
        asked = spec.get("input")
        if asked is None:
            return None
        return cls(asked, asked.get("image") or image, parse_duration(spec.get("stallTimeout", "1m")), version)


def message_limit(spec: Mapping[str, Any]) -> int:
    """Return the bytes of each container's termination message that reach the API server, for a pod of this spec.

    Source: ``getTerminationMessage`` and ``normalizeStatus`` of the kubelet. Both cut by bytes, also within a
    character, and leave no sign of it. A message of exactly this length may therefore have been longer. Each byte of a
    broken character arrives as three. Containers of all kinds count, also those that an admission plugin or ``kubectl
    debug`` has added.
    """
    containers = sum(len(spec.get(kind) or ()) for kind in ("initContainers", "containers", "ephemeralContainers"))
    return min(_MESSAGE, _MESSAGES // max(1, containers))


def pod_name(owner: Owner, chunk: Chunk | PodObserved) -> str:
    """Return the unique name of this attempt's pod."""
    about = f"{owner.uid}/{chunk.kind}/{chunk.begin}/{chunk.attempt}"
    return with_digest(owner.name, about, _POD_NAME)


def results_name(job: str) -> str:
    """Return the name of the ConfigMap with the results of a job (its name) without a reduce step."""
    return f"{shorten(job, LONGEST_NAME - len(RESULTS_SUFFIX))}{RESULTS_SUFFIX}"


def is_chunk_of(owner: Owner, pod: PodObserved) -> bool:
    """Return whether a pod is in the job's namespace under the name of the attempt that it claims to be."""
    return (pod.namespace, pod.name) == (owner.namespace, pod_name(owner, pod))


def chunk_pod(
    owner: Owner,
    chunk: Chunk,
    template: Mapping[str, Any],
    *,
    processor: PoolSpec,
    epoch: int,
    results: Sequence[Mapping[str, Any]] = (),
    priority_class: str = "",
    step: InputStep | None = None,
    others: Resources | None = None,
) -> dict[str, Any]:
    """Return the manifest of the pod of a chunk, a pilot or a reduce.

    ``template`` is not modified. ``others``: what its other containers request together with what the cluster adds;
    None: just what the template's do. ``results`` has the sources of the volume with all results for a reduce pod.
    ``priority_class`` preempts placeholders and applies if the template names no class. ``step`` has the settings of
    the input step, which a reduce does not have.
    """
    meta = template.get("metadata") or {}
    spec = {**template.get("spec", {}), "restartPolicy": "Never"}
    spec.setdefault("automountServiceAccountToken", False)
    if processor.hold == "Placeholder" and priority_class:
        spec.setdefault("priorityClassName", priority_class)
    spec["affinity"] = on_node(spec.get("affinity") or {}, chunk.node)
    spec["tolerations"] = [*(spec.get("tolerations") or ()), toleration(owner.pool)]
    left = processor.share - (beside(spec, spec["containers"][0]["name"]) if others is None else others)
    reduce = chunk.kind == "Reduce"
    spec["volumes"] = [*(spec.get("volumes") or ()), *_volumes(results if reduce else None)]
    env, mounts = _environment(owner, chunk), _mounts(reduce=reduce)
    notes = {}
    if step is not None and not reduce:
        env += _input_environment(step)
        mounts.append({"name": STEP, "mountPath": INPUT})
        spec["volumes"] += input_volumes(step)
        spec["initContainers"] = [_input_container(step, spec, processor, left), *(spec.get("initContainers") or ())]
        if chunk.turn is not None:
            notes[TURN] = format_time(chunk.turn)
    env.append({"name": "PUNCTUAL_RESULT_LIMIT", "value": str(message_limit(spec) - 1)})
    for field in ("initContainers", "containers"):
        if spec.get(field):
            spec[field] = [_furnish(container, env, mounts) for container in spec[field]]
    first, *rest = spec["containers"]
    resources = _resources(first.get("resources") or {}, processor, left, memory=not names_memory(spec))
    spec["containers"] = [{**first, "resources": resources}, *rest]
    if chunk.kind == "Guest":
        _take_resources(spec)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(owner, chunk),
            "namespace": owner.namespace,
            "labels": {
                **(meta.get("labels") or {}),
                POOL_LABEL: label(owner.pool),
                JOB_LABEL: label(owner.name),
                JOB_UID_LABEL: owner.uid,
                KIND_LABEL: chunk.kind,
            },
            "annotations": {
                **(meta.get("annotations") or {}),
                BEGIN: str(chunk.begin),
                END: str(chunk.origin),
                ATTEMPT: str(chunk.attempt),
                EPOCH: str(epoch),
                WORK: first["name"],
                **notes,
            },
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": spec,
    }


def _input_environment(step: InputStep) -> list[dict[str, str]]:
    values = {"PUNCTUAL_INPUT": f"{INPUT}/data", "PUNCTUAL_INPUT_CUT": step.asked.get("cut", "Bytes")}
    if record := step.asked.get("recordBytes"):
        values["PUNCTUAL_INPUT_RECORD_BYTES"] = str(record)
    if separator := step.asked.get("separator"):
        values["PUNCTUAL_INPUT_SEPARATOR"] = separator.replace("$", "$$")  # the kubelet shall expand nothing in it
    return [{"name": name, "value": value} for name, value in values.items()]


def input_volumes(step: InputStep) -> list[dict[str, Any]]:
    """Return the volumes of a pod with this input step."""
    volumes: list[dict[str, Any]] = [{"name": STEP, "emptyDir": {}}]
    if volume := step.asked.get("volume"):
        claim = {"claimName": volume["claimName"], "readOnly": True}
        volumes.append({"name": "punctual-source", "persistentVolumeClaim": claim})
    return volumes


def _input_container(step: InputStep, spec: Mapping[str, Any], processor: PoolSpec, left: Resources) -> dict[str, Any]:
    """Return the init container of the input step. It satisfies the Pod Security standard "restricted".

    Exception: a template with ``runAsUser: 0``, because the input step runs as the template's user.
    """
    asked = step.asked
    values = {"PUNCTUAL_INPUT_TIMEOUT": f"{step.patience:g}"}
    if step.version is not None:
        values["PUNCTUAL_INPUT_SIZE"] = str(step.version.size)
        # the value comes from a server: the kubelet must not expand anything in it
        values["PUNCTUAL_INPUT_VALIDATOR"] = step.version.validator.replace("$", "$$")
    mounts, secrets = [], []
    if volume := asked.get("volume"):
        values["PUNCTUAL_INPUT_PATH"] = f"{SOURCE}/{volume['path']}"
        mounts.append({"name": "punctual-source", "mountPath": SOURCE, "readOnly": True})
    else:
        values["PUNCTUAL_INPUT_URL"] = asked["http"]["url"].replace("$", "$$")  # the kubelet shall expand nothing in it
        secrets = _secrets(asked["http"].get("headers") or ())
    user = (spec.get("securityContext") or {}).get("runAsUser", UNPRIVILEGED)
    return {
        "name": STEP,
        "image": step.image,
        "command": ["python3", "-m", "punctual.fetch"],
        # secrets last: no earlier variable could contain one, and messages contain the address
        "env": [*({"name": name, "value": value} for name, value in values.items()), *secrets],
        "volumeMounts": mounts,
        "resources": _resources({}, processor, left, memory=not names_memory(spec)),
        "securityContext": {
            "runAsUser": user,
            "runAsNonRoot": user != 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _secrets(headers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the environment with the headers' values. The kubelet reads the Secrets; the operator never does."""
    if not headers:
        return []
    names = " ".join(header["name"] for header in headers)
    return [
        {"name": "PUNCTUAL_INPUT_HEADERS", "value": names},
        *(
            {"name": f"PUNCTUAL_INPUT_HEADER_{n}", "valueFrom": {"secretKeyRef": dict(header["secretKeyRef"])}}
            for n, header in enumerate(headers)
        ),
    ]


def label(name: str) -> str:
    """Return a name as the value of a label or taint, which is shorter than a name may be."""
    return shorten(name, LONGEST_LABEL)


def owner_reference(owner: Owner) -> dict[str, Any]:
    """Return the owner reference by which the garbage collector deletes the job's objects."""
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "DivisibleJob",
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }


def toleration(pool: str) -> dict[str, Any]:
    """Return the toleration for nodes that carry the pool's taint."""
    return {"key": POOL_LABEL, "operator": "Equal", "value": label(pool), "effect": "NoSchedule"}


def on_node(affinity: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Add "on this node" to the template's affinity. Terms are alternatives, so it is added to each of them."""
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    nodes = affinity.get("nodeAffinity") or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = (nodes.get(required) or {}).get("nodeSelectorTerms") or [{}]
    terms = [{**term, "matchFields": [*(term.get("matchFields") or ()), here]} for term in terms]
    return {**affinity, "nodeAffinity": {**nodes, required: {"nodeSelectorTerms": terms}}}


def _environment(owner: Owner, chunk: Chunk) -> list[dict[str, str]]:
    values = {
        "PUNCTUAL_JOB": owner.name,
        "PUNCTUAL_BEGIN": chunk.begin,
        "PUNCTUAL_END": chunk.origin,
        "PUNCTUAL_TOTAL": owner.units,
        "PUNCTUAL_ATTEMPT": chunk.attempt,
        "PUNCTUAL_DIR": FOLDER,
    }
    if chunk.kind == "Reduce":
        values["PUNCTUAL_RESULTS"] = RESULTS
    return [{"name": name, "value": str(value)} for name, value in values.items()]


def _mounts(*, reduce: bool) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": VOLUME, "mountPath": FOLDER},
        {"name": "punctual-offers", "mountPath": OFFERS, "readOnly": True},
    ]
    if reduce:
        mounts.append({"name": "punctual-results", "mountPath": RESULTS, "readOnly": True})
    return mounts


def _volumes(results: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    told = [
        {"path": path, "fieldRef": {"fieldPath": f"metadata.annotations['{note}']"}}
        for path, note in (("end", OFFERED_END), ("fetch", TURN))
    ]
    volumes: list[dict[str, Any]] = [
        {"name": VOLUME, "emptyDir": {}},
        {"name": "punctual-offers", "downwardAPI": {"items": told}},
    ]
    if results is not None:
        volumes.append({"name": "punctual-results", "projected": {"sources": list(results)}})
    return volumes


def _furnish(container: Mapping[str, Any], env: list[dict[str, str]], mounts: list[dict[str, Any]]) -> dict[str, Any]:
    # Punctual's variables first: $(PUNCTUAL_BEGIN) in a later variable is expanded from earlier ones
    return {
        "terminationMessagePolicy": "FallbackToLogsOnError",  # the end of a failed container's log explains the failure
        **container,
        "env": [*env, *(container.get("env") or ())],
        "volumeMounts": [*(container.get("volumeMounts") or ()), *mounts],
    }


def _resources(asked: Mapping[str, Any], processor: PoolSpec, left: Resources, *, memory: bool) -> dict[str, Any]:
    """Return one processor as limit, and what the pod's other containers leave of it as request.

    ``memory``: whether the pod names none as a whole. Memory is the template's, if it names any, here or there. Where
    pods share processors, each requests an equal part, so that as many fit as the pool may have on a node. Its limit is
    a whole processor until the agent sets its cap.
    """
    requests, limits = dict(asked.get("requests") or {}), dict(asked.get("limits") or {})
    limits["cpu"] = format_cores(processor.cpu)
    requests["cpu"] = format_cores(max(LEAST_CPU, left.cpu))
    if memory and processor.memory and "memory" not in requests and "memory" not in limits:
        limits["memory"] = format_bytes(processor.memory)
        requests["memory"] = format_bytes(min(processor.memory, max(LEAST_MEMORY, left.memory)))
    return {**asked, "requests": requests, "limits": limits}


def _take_resources(spec: dict[str, Any]) -> None:
    """Take CPU and memory from all requests and limits, so that the pod is of the class BestEffort."""

    def kept(part: Mapping[str, Any]) -> dict[str, Any]:
        asked = part.get("resources") or {}
        left = {
            field: {name: amount for name, amount in (asked.get(field) or {}).items() if name not in {"cpu", "memory"}}
            for field in ("requests", "limits")
        }
        return {**part, "resources": {**asked, **left}}

    for field in ("initContainers", "containers"):
        if spec.get(field):
            spec[field] = [kept(container) for container in spec[field]]
    if spec.get("resources"):
        spec.update(kept(spec))


def memory_of(spec: Mapping[str, Any]) -> int:
    """Return the bytes that the containers of a template's pod name together, as limit or request; 0: none."""

    def named(part: Mapping[str, Any]) -> Decimal:
        asked = part.get("resources") or {}
        return max(parse_quantity((asked.get(field) or {}).get("memory", 0)) for field in ("requests", "limits"))

    return math.ceil(max(named(spec), sum((named(container) for container in spec["containers"]), start=Decimal(0))))


def project_pod(body: Mapping[str, Any]) -> PodObserved | ForeignPod | None:
    """Return the stored state of a pod: its claim to be a chunk pod, the capacity of another pod, or nothing."""
    meta = body["metadata"]
    uid = (meta.get("labels") or {}).get(JOB_UID_LABEL)
    # the claim proves nothing, because anyone with the right to create pods can write it (`is_chunk_of`)
    if uid and any(o.get("uid") == uid for o in meta.get("ownerReferences") or ()):
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
    disrupted = any(c["type"] == "DisruptionTarget" and c["status"] == "True" for c in status.get("conditions") or ())
    from_outside = deleting or disrupted or bool(status.get("reason"))
    last = _last(state, work, status, helpers=phase == "Failed" and from_outside)
    began = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    waiting = {} if last else _waiting(status, state)
    ended = last.state if last else {}
    reason, said = _reason(status, ended or waiting, spec)
    message, limit = (ended or waiting).get("message") or "", message_limit(spec)
    if not status.get("reason"):
        message, said = message or said, ""
    outcome = _outcome(phase, state.get("terminated"), from_outside=from_outside)
    helpers = _helpers(work, found) if outcome else ()
    if phase not in OVER and all(helper.exit_code is not None for helper in helpers):
        outcome = None  # nothing keeps the pod: its phase follows at once, and people see a pod that runs until then
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
        helpers=helpers if outcome else (),
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

    ``helpers``: something outside has ended the pod, so if the work has not failed itself, a failed container beside
    it tells more.
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


def _reason(status: Mapping[str, Any], state: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[str, str]:
    """Return why the pod has ended or does not run, and the cluster's message about that, if it is not its container's.

    The pod's own reason comes before its container's.
    """
    if status.get("reason"):
        return str(status["reason"]), str(status.get("message") or "")
    return (str(state.get("reason") or ""), "") if state else _unplaced(status, spec)


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


def _unplaced(status: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[str, str]:
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
    if reason != NO_ROOM or names_capacity(said):
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
