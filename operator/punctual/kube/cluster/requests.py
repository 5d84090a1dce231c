"""What a pod requests of its node, by the rules of kube-scheduler, for every resource.

Source: ``PodRequests`` of k8s.io/component-helpers/resource (v0.35), as kube-scheduler calls it (``PodInfo
.CalculateResource``), and the defaults of the API server (``SetDefaults_Pod``), so that a template is read as its pod
will be:

- The larger of start-up and run. Init containers run one after the other. Sidecars (restartPolicy Always, KEP-753)
  continue beside all later containers.
- A limit without a request is a request.
- Requests of the pod as a whole (``spec.resources``, KEP-2837) replace those of its containers.
- The overhead of its RuntimeClass is added.
- While a container is resized in place (KEP-1287), the largest counts of what is asked for, what the kubelet has
  allocated and what is in force. A resize that the node can never do (Infeasible) does not count.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import ceil
from typing import Any, Final, NamedTuple

from punctual.notation.quantity import parse_quantity
from punctual.scheduling.model.resources import Resources

Body = Mapping[str, Any]
Amounts = dict[str, float]
NONE: Final[Body] = {}


class Part(NamedTuple):
    """What one part of a pod requests: a container, its overhead, or the pod as a whole."""

    name: str
    requests: Resources


def requested(spec: Body, status: Body = NONE) -> Resources:
    """Return what kube-scheduler counts for a pod."""
    counted = _Counted(spec, status)
    run, stay, start = Amounts(), Amounts(), Amounts()
    for container in spec["containers"]:
        _add(run, counted.container(container))
    for init in spec.get("initContainers") or ():
        if _is_sidecar(init):
            _add(stay, counted.container(init))
            _raise(start, stay)
        else:
            _raise(start, _sum(stay, _asked(init)))  # the kubelet resizes no init container that ends
    _add(run, stay)
    _raise(run, start)
    run |= counted.whole(run)
    _add(run, _amounts(spec.get("overhead")))
    return Resources.of(run)


def beside(spec: Body, work: str) -> Resources:
    """Return what a pod requests beside its container ``work``, while that runs."""
    found = Amounts()
    for part in _running(spec, work):
        _add(found, part)
    return Resources.of(found)


def parts(spec: Body) -> list[Part]:
    """Return what the parts of a pod request, for a message: containers, init containers, overhead.

    Where the pod as a whole names a resource, that is the only part of it.
    """
    whole = _Counted(spec, NONE).whole({})
    found = [("the pod as a whole", whole)]
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        first = container not in spec["containers"] and not _is_sidecar(container)
        asked = {name: amount for name, amount in _asked(container).items() if name not in whole}
        found.append((f"{container['name']} at first" if first else container["name"], asked))
    found.append(("overhead", _amounts(spec.get("overhead"))))
    return [Part(name, Resources.of(amounts)) for name, amounts in found if amounts]


def cpu_limit(spec: Body) -> float | None:
    """Return the CPU that the containers of a pod may use together while they run, cores; None: it has no limit."""
    whole = _amounts((spec.get("resources") or NONE).get("limits")).get("cpu")
    if whole:
        return whole
    running = [*spec["containers"], *(one for one in spec.get("initContainers") or () if _is_sidecar(one))]
    limits = [_amounts((one.get("resources") or NONE).get("limits")).get("cpu", 0.0) for one in running]
    return sum(limits) if all(limits) else None


def names_memory(spec: Body) -> bool:
    """Return whether a pod has a request or limit of memory as a whole."""
    whole = spec.get("resources") or NONE
    return any("memory" in (whole.get(field) or NONE) for field in ("requests", "limits"))


def is_device(name: str) -> bool:
    """Return whether a resource is an extended one: Kubernetes' own have no domain."""
    return "/" in name


def _running(spec: Body, work: str) -> Iterator[Amounts]:
    """Yield what runs beside a container."""
    yield from (_asked(one) for one in spec["containers"] if one["name"] != work)
    yield from (_asked(one) for one in spec.get("initContainers") or () if _is_sidecar(one))
    yield _amounts(spec.get("overhead"))


class _Counted:
    """Reads one pod's requests, with what its status says of a resize in place."""

    def __init__(self, spec: Body, status: Body) -> None:
        self._spec = spec
        self._status = status
        self._resized: dict[str, Body] = {
            one["name"]: one
            for field in ("containerStatuses", "initContainerStatuses")
            for one in status.get(field) or ()
            if one.get("resources") is not None
        }

    def container(self, container: Body) -> Amounts:
        """Return what counts for a container."""
        asked, seen = _asked(container), self._resized.get(container["name"])
        if seen is None or _is_in_force((container.get("resources") or NONE).get("requests"), seen):
            return asked
        return self._in_force(asked, seen)

    def whole(self, containers: Amounts) -> Amounts:
        """Return what the pod as a whole requests, where that replaces the sum of its containers."""
        resources = self._spec.get("resources") or NONE
        asked = _amounts(resources.get("requests"))
        for name, limit in _amounts(resources.get("limits")).items():
            if name not in asked and (name not in containers or name.startswith(HUGE)):
                asked[name] = limit
        asked = {name: amount for name, amount in asked.items() if name in WHOLE or name.startswith(HUGE)}
        if asked and self._status.get("resources") is not None:
            return {name: amount for name, amount in self._in_force(asked, self._status).items() if name in asked}
        return asked

    def _in_force(self, asked: Amounts, seen: Body) -> Amounts:
        found = _amounts((seen.get("resources") or NONE).get("requests"))
        _raise(found, _amounts(seen.get("allocatedResources")))
        if not self._infeasible():
            _raise(found, asked)
        return found

    def _infeasible(self) -> bool:
        """Whether the node can never do the resize that is asked for."""
        if self._status.get("resize") == "Infeasible":  # up to 1.32
            return True
        return any(
            condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
            for condition in self._status.get("conditions") or ()
        )


HUGE: Final = "hugepages-"
WHOLE: Final = frozenset({"cpu", "memory"})
"""What a pod can request as a whole, beside huge pages."""


def _is_in_force(requests: Body | None, seen: Body) -> bool:
    """Return whether a container simply has what it requests, as nearly all have."""
    return bool(requests == seen["resources"].get("requests") == seen.get("allocatedResources", requests))


def _is_sidecar(container: Body) -> bool:
    return container.get("restartPolicy") == "Always"


def _asked(container: Body) -> Amounts:
    resources = container.get("resources") or NONE
    return _amounts(resources.get("limits")) | _amounts(resources.get("requests"))


def _amounts(quantities: Body | None) -> Amounts:
    return {name: _amount(name, quantity) for name, quantity in (quantities or NONE).items()}


@lru_cache(maxsize=4096)  # the pods of a cluster repeat the same requests
def _amount(name: str, quantity: str | float) -> float:
    try:
        amount = parse_quantity(quantity)
    except ValueError:  # of a template: the API server refuses its pods, in words of its own
        return 0.0
    return float(amount) if name == "cpu" else ceil(amount)


def _add(to: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        to[name] = to.get(name, 0) + amount


def _sum(one: Amounts, other: Amounts) -> Amounts:
    found = dict(one)
    _add(found, other)
    return found


def _raise(to: Amounts, other: Amounts) -> None:
    for name, amount in other.items():
        to[name] = max(to.get(name, 0), amount)
