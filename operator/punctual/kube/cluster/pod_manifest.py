"""Builds the pod of a chunk from its job's template.

Its name is derived from job, kind, begin and attempt, so a second create is a 409 and not a second pod. It requests one
processor on one node, and kube-scheduler still decides whether it fits. Progress goes through an emptyDir that the
node's agent reads from outside, and offers arrive through a downward-API volume. Neither needs a token or the network.
If chunks have an input, the input step runs before the template's containers. Another annotation in the downward-API
volume gives it the transfer turn. It reports its measurements in its termination message.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from punctual.kube.api.base import API_VERSION
from punctual.kube.api.names import LONGEST_LABEL, shorten
from punctual.kube.cluster.requests import beside, names_memory
from punctual.kube.known.jobs import Owner
from punctual.kube.known.pod_names import pod_name
from punctual.labels import (
    ATTEMPT,
    BEGIN,
    END,
    EPOCH,
    JOB_LABEL,
    JOB_UID_LABEL,
    KIND_LABEL,
    OFFERED_END,
    POOL_LABEL,
    PROCESSOR,
    TURN,
    WORK,
)
from punctual.notation.duration import format_time, parse_duration
from punctual.notation.quantity import format_bytes, format_cores, parse_quantity
from punctual.scheduling.model.job import Chunk, InputVersion
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.resources import Resources

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
LEAST_CPU: Final = 0.001
"""Cores that the work requests at least, whatever the other containers leave."""
LEAST_MEMORY: Final = 2**20


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
    if chunk.kind != "Guest" and processor.others:
        resources = _with_devices(resources, processor, left)
        notes[PROCESSOR] = size(processor.processor)
    spec["containers"] = [{**first, "resources": resources}, *rest]
    if chunk.kind == "Guest":
        _take_resources(spec)
    notes |= {EPOCH: str(epoch), WORK: first["name"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(owner, chunk, meta, notes), "spec": spec}


def _metadata(owner: Owner, chunk: Chunk, meta: Mapping[str, Any], notes: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata of a chunk's pod. ``meta``: the template's; ``notes``: annotations beside the chunk's own."""
    marks = chunk_marks(owner, chunk)
    return {
        "name": pod_name(owner, chunk),
        "namespace": owner.namespace,
        "labels": {**(meta.get("labels") or {}), **marks.labels},
        "annotations": {**(meta.get("annotations") or {}), **marks.notes, **notes},
        "ownerReferences": [owner_reference(owner)],
    }


class ChunkMarks(NamedTuple):
    """What says on a pod that it is the one of a chunk."""

    labels: dict[str, str]
    notes: dict[str, str]
    """Annotations."""


def chunk_marks(owner: Owner, chunk: Chunk) -> ChunkMarks:
    """Return the labels and annotations by which the pod of a chunk is known."""
    labels = {
        POOL_LABEL: label(owner.pool),
        JOB_LABEL: label(owner.name),
        JOB_UID_LABEL: owner.uid,
        KIND_LABEL: chunk.kind,
    }
    return ChunkMarks(labels, {BEGIN: str(chunk.begin), END: str(chunk.origin), ATTEMPT: str(chunk.attempt)})


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
        "apiVersion": API_VERSION,
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
    """Return CPU and memory of one processor as limit, and what the pod's other containers leave of it as request.

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


def _with_devices(resources: Mapping[str, Any], processor: PoolSpec, left: Resources) -> dict[str, Any]:
    """Add what the other containers leave of the processor's extended resources; those that the work names are its own.

    Kubernetes wants limits that equal the requests. A zero keeps a LimitRange from setting its default.
    """
    requests, limits = resources["requests"], resources["limits"]
    missing = {
        name: str(int(left[name])) for name, _ in processor.others if name not in requests and name not in limits
    }
    return {**resources, "requests": {**requests, **missing}, "limits": {**limits, **missing}}


def size(processor: Resources) -> str:
    """Return the size of a processor as an annotation: ``500m 512Mi example.com/gpu=1``."""
    others = (f"{name}={amount}" for name, amount in processor.others)
    return " ".join((format_cores(processor.cpu), format_bytes(processor.memory), *others))


def extended_of(size: str) -> frozenset[str]:
    """Return the names of the extended resources of a processor with this size."""
    return frozenset(part.partition("=")[0] for part in size.split() if "=" in part)


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
