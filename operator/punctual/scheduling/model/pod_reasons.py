"""Reasons that kubelets, kube-scheduler and controllers write into a pod's status: one table, one row for each reason.

A row states what has caused it, whether the state can heal, and what a user can do. It holds for Kubernetes 1.30 to
1.35; ``source`` names the file of Kubernetes (or of containerd, for what the runtime says) that writes the reason.
A reason without a row is judged by the exit code's owner: a container that ended with another status than 0 is the
work's doing; a pod without any exit code is the cluster's.

The core judges pods by this table alone, so a new reason is one more row.
"""

import re
from collections.abc import Collection
from typing import Final, Literal, NamedTuple

Owner = Literal["Cluster", "Pod", "Exit"]
"""What has caused a reason. Cluster: a node, a controller or a person; it never counts as a failure of the work. Pod: a
limit, name or request of the pod's own template; it counts. Exit: the exit code decides."""
Where = Literal["pod", "disruption", "ended", "waiting", "scheduled"]
"""Where a reason is found: ``status.reason``, the condition DisruptionTarget, a container's ``terminated`` or
``waiting`` state, or the condition PodScheduled (which reasons of our own tell apart by its message)."""

NO_VOLUME: Final = "NoVolume"
"""Punctual's own reason for a pod that cannot be scheduled because a claim that it names is missing or not bound."""
NOMINATED: Final = "Nominated"
"""Punctual's own reason for a pod for which the scheduler is preempting other pods."""
NO_ROOM: Final = "Unschedulable"
"""The scheduler names capacity: CPU, memory or the number of pods of the node."""
NOT_PLACED: Final = "NotPlaced"
"""Punctual's own reason for a pod that the scheduler refuses for another cause than capacity."""
NO_SCHEDULER: Final = "NoScheduler"
"""Punctual's own reason for a pod that names a scheduler, and no scheduler has looked at it."""
UNSEEN: Final = "NotSeen"
"""Punctual's own reason for a pod that the cluster's scheduler has not looked at."""
OUT_OF_EXTENDED: Final = "OutOfExtendedResource"
"""Punctual's own reason for a pod that its kubelet rejects for lack of an extended resource of the pool's processor."""
GATED: Final = "SchedulingGated"


class Row(NamedTuple):
    """What a reason means."""

    reason: str
    where: Where
    owner: Owner
    source: str
    do: str = ""
    """What a user can do about it."""
    heals: bool = True
    """Whether waiting or another pod can help. If not, the first look at it is enough."""
    fine: bool = False
    """Nothing is wrong with a pod in this state."""


_KUBELET: Final = "pkg/kubelet"
_PREDICATES: Final = f"{_KUBELET}/lifecycle/predicate.go"
_HANDLERS: Final = f"{_KUBELET}/lifecycle/handlers.go"
_IMAGES: Final = f"{_KUBELET}/images/types.go"
_CONTAINER: Final = f"{_KUBELET}/kuberuntime/kuberuntime_container.go"
_SYNC: Final = f"{_KUBELET}/container/sync_result.go"
_STATUS: Final = f"{_KUBELET}/kubelet_pods.go"
_CRI: Final = "containerd: internal/cri/server"
_API: Final = "staging/src/k8s.io/api/core/v1/types.go"

_MEMORY: Final = "raise spec.processor.memory of the pool, or the memory in the template"
_IMAGE: Final = "correct the image's name or pull secret, or bring the registry back"
_CONFIG: Final = "correct what the template refers to, or create it (ConfigMap, Secret, volume)"
_COMMAND: Final = "correct command, image or securityContext of the template"
_FEATURE: Final = "the nodes do not support a field of the template: remove the field, or choose other nodes"

TABLE: Final = (
    # the pod's own reason: kubelets that end or reject it, and controllers
    # its message names the limit that the pod exceeded; with DisruptionTarget, the node was short of a resource
    Row("Evicted", "pod", "Pod", f"{_KUBELET}/eviction/helpers.go"),
    Row("DeadlineExceeded", "pod", "Pod", f"{_KUBELET}/active_deadline.go",
        "remove activeDeadlineSeconds from the template, or raise it"),
    Row("Preempting", "pod", "Cluster", f"{_KUBELET}/preemption/preemption.go"),
    Row("Preempted", "pod", "Cluster", f"{_KUBELET}/preemption/preemption.go"),
    Row("Terminated", "pod", "Cluster", f"{_KUBELET}/nodeshutdown/nodeshutdown_manager.go"),
    Row("NodeShutdown", "pod", "Cluster", f"{_KUBELET}/nodeshutdown/nodeshutdown_manager.go"),
    Row("Shutdown", "pod", "Cluster", f"{_KUBELET}/nodeshutdown/nodeshutdown_manager.go"),
    Row("NodeLost", "pod", "Cluster", "pkg/util/node/node.go"),
    Row("NodeAffinity", "pod", "Cluster", _PREDICATES),
    Row("NodeName", "pod", "Cluster", _PREDICATES),
    Row("NodePorts", "pod", "Cluster", _PREDICATES),
    Row("TaintToleration", "pod", "Cluster", _PREDICATES),
    Row("OutOfcpu", "pod", "Cluster", _PREDICATES),
    Row("OutOfmemory", "pod", "Cluster", _PREDICATES),
    Row("OutOfpods", "pod", "Cluster", _PREDICATES),
    Row(OUT_OF_EXTENDED, "pod", "Cluster", _PREDICATES),
    Row("OutOfephemeral-storage", "pod", "Cluster", _PREDICATES),
    Row("InvalidNodeInfo", "pod", "Cluster", _PREDICATES),
    Row("UnknownReason", "pod", "Cluster", _PREDICATES),
    Row("UnexpectedPredicateFailureType", "pod", "Cluster", _PREDICATES),
    Row("UnexpectedAdmissionError", "pod", "Cluster", f"{_KUBELET}/cm/admission/errors.go"),
    Row("TopologyAffinityError", "pod", "Cluster", f"{_KUBELET}/cm/topologymanager/topology_manager.go"),
    Row("VolumeAttachmentLimitExceeded", "pod", "Cluster", f"{_KUBELET}/volumemanager/volume_manager.go"),
    Row("PodOSSelectorNodeLabelDoesNotMatch", "pod", "Pod", _PREDICATES, _FEATURE, heals=False),
    Row("PodOSNotSupported", "pod", "Pod", _PREDICATES, _FEATURE, heals=False),
    Row("InitContainerRestartPolicyForbidden", "pod", "Pod", _PREDICATES, _FEATURE, heals=False),
    Row("SupplementalGroupsPolicyNotSupported", "pod", "Pod", _PREDICATES, _FEATURE, heals=False),
    Row("SysctlForbidden", "pod", "Pod", f"{_KUBELET}/sysctl/allowlist.go",
        "remove the sysctl, or allow it on the nodes", heals=False),
    Row("AppArmor", "pod", "Pod", _HANDLERS, "load the AppArmor profile on the nodes, or remove it", heals=False),
    Row("PodLevelResourcesNotSupported", "pod", "Pod", _HANDLERS, _FEATURE, heals=False),
    Row("PodFeatureUnsupported", "pod", "Pod", _HANDLERS, _FEATURE, heals=False),
    # the condition DisruptionTarget
    Row("TerminationByKubelet", "disruption", "Cluster", _API),
    Row("PreemptionByScheduler", "disruption", "Cluster", _API),
    Row("DeletionByTaintManager", "disruption", "Cluster", "pkg/controller/tainteviction/taint_eviction.go"),
    Row("DeletionByDeviceTaintManager", "disruption", "Cluster", "pkg/controller/devicetainteviction"),
    Row("EvictionByEvictionAPI", "disruption", "Cluster", "pkg/registry/core/pod/storage/eviction.go"),
    Row("DeletionByPodGC", "disruption", "Cluster", "pkg/controller/podgc/gc_controller.go"),
    # how a container ended
    Row("Completed", "ended", "Exit", _CRI, fine=True),
    Row("Error", "ended", "Exit", _CRI),
    Row("OOMKilled", "ended", "Pod", _CRI, _MEMORY),
    Row("StartError", "ended", "Pod", _CRI, _COMMAND),
    Row("ContainerCannotRun", "ended", "Pod", _CONTAINER, _COMMAND),
    Row("ContainerStatusUnknown", "ended", "Cluster", _STATUS),
    Row("Unknown", "ended", "Cluster", _CRI),
    Row("RestartingAllContainers", "ended", "Cluster", _STATUS),
    # why a container waits
    Row("ContainerCreating", "waiting", "Cluster", _STATUS, fine=True),
    Row("PodInitializing", "waiting", "Cluster", _STATUS, fine=True),
    Row("ErrImagePull", "waiting", "Cluster", _IMAGES, _IMAGE),
    Row("ImagePullBackOff", "waiting", "Cluster", _IMAGES, _IMAGE),
    Row("ImageInspectError", "waiting", "Cluster", _IMAGES, _IMAGE),
    Row("RegistryUnavailable", "waiting", "Cluster", "staging/src/k8s.io/cri-api/pkg/errors/errors.go", _IMAGE),
    Row("SignatureValidationFailed", "waiting", "Pod", "staging/src/k8s.io/cri-api/pkg/errors/errors.go",
        "sign the image, or choose one that the nodes' policy accepts"),
    Row("ImageVolumeMountFailed", "waiting", "Pod", "staging/src/k8s.io/cri-api/pkg/errors/errors.go", _CONFIG),
    Row("RROUnsupported", "waiting", "Pod", "staging/src/k8s.io/cri-api/pkg/errors/errors.go", _FEATURE),
    Row("InvalidImageName", "waiting", "Pod", _IMAGES, "correct the image's name", heals=False),
    Row("ErrImageNeverPull", "waiting", "Pod", _IMAGES,
        "load the image on the nodes of the pool, or set another imagePullPolicy", heals=False),
    Row("CreateContainerConfigError", "waiting", "Pod", _CONTAINER, _CONFIG),
    Row("CreateContainerError", "waiting", "Pod", _CONTAINER, _COMMAND),
    Row("PreCreateHookError", "waiting", "Cluster", _CONTAINER),
    Row("PreStartHookError", "waiting", "Cluster", _CONTAINER),
    Row("PostStartHookError", "waiting", "Pod", _CONTAINER, "correct the postStart hook of the template"),
    Row("RunContainerError", "waiting", "Pod", _SYNC, _COMMAND),
    Row("CrashLoopBackOff", "waiting", "Pod", _SYNC, "kubectl logs shows why the container ends again and again"),
    Row("KillContainerError", "waiting", "Cluster", _SYNC),
    Row("CreatePodSandboxError", "waiting", "Cluster", _SYNC),
    Row("ConfigPodSandboxError", "waiting", "Cluster", _SYNC),
    Row("KillPodSandboxError", "waiting", "Cluster", _SYNC),
    # why no node was chosen
    Row(NO_ROOM, "scheduled", "Cluster", _API),
    Row(NOMINATED, "scheduled", "Cluster", "pkg/scheduler/framework/preemption/preemption.go"),
    Row("SchedulerError", "scheduled", "Cluster", _API),
    Row(GATED, "scheduled", "Pod", _API, "remove the scheduling gate, or let its controller remove it"),
    Row(NOT_PLACED, "scheduled", "Pod", "pkg/scheduler/framework/types.go",
        "change the rule of the template that the scheduler names"),
    Row(NO_VOLUME, "scheduled", "Pod", "pkg/scheduler/framework/plugins/volumebinding",
        "create the claim, or correct its name"),
    Row(UNSEEN, "scheduled", "Cluster", "pkg/scheduler/eventhandlers.go", "see whether kube-scheduler runs"),
    Row(NO_SCHEDULER, "scheduled", "Pod", "pkg/scheduler/eventhandlers.go",
        "remove schedulerName, or run a scheduler of that name"),
)  # fmt: skip
"""All reasons, each once."""

_ROWS: Final = {row.reason: row for row in TABLE}
OUT_OF: Final = "OutOf"
"""A kubelet's rejection for any resource: this, followed by the resource's name."""
IMAGES: Final = frozenset(row.reason for row in TABLE if row.do == _IMAGE)
"""Waiting reasons of an image that cannot be pulled: a wrong name, or a registry that is away."""
CAPACITY: Final = frozenset({"OutOfcpu", "OutOfmemory", "OutOfpods", OUT_OF_EXTENDED})
"""Rejections by a kubelet that has no free processor on its node, though the scheduler thought so."""


def row_of(reason: str) -> Row | None:
    """Return the row of a reason; None: it has none."""
    if (row := _ROWS.get(reason)) is None and reason.startswith(OUT_OF):
        # a resource of the pod's own, such as a device: no processor has it
        return Row(reason, "pod", "Pod", _PREDICATES, f"request less of {reason.removeprefix(OUT_OF)} in the template")
    return row


def is_own(reason: str, exit_code: int | None) -> bool:
    """Return whether a pod that has failed with this reason and exit code did so by its own fault."""
    row = row_of(reason)
    if row is None or row.owner == "Exit":
        return bool(exit_code)
    return row.owner == "Pod"


def names_capacity(message: str, extended: Collection[str] = ()) -> bool:
    """Return whether kube-scheduler names the lack of a processor as why a pod fits no node.

    A chunk's pod may run on one node only, so what it names is about that node. Other resources than CPU, memory, the
    number of pods and ``extended`` are not part of a processor: other jobs do not ask for them.
    """
    names = "|".join(map(re.escape, ("cpu", "memory", *extended)))
    return re.search(rf"\b(Insufficient ({names})|Too many pods)(?![./-]?\w)", message) is not None
