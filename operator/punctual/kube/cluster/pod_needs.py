"""Reads from a pod's spec which nodes it may run on, as kube-scheduler does before it looks at capacity.

nodeSelector, required node affinity, tolerations, host ports and nodeName say so themselves; of volumes the spec only
names the claims (`punctual.kube.cluster.claims`). Preferences and what depends on other pods (anti-affinity, topology
spread) are not read: only the scheduler can judge them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from punctual.kube.cluster.requests import requested
from punctual.scheduling.model.node_rules import ANY_NODE, HostPort, NodeRules, Requirement, Rule, Term, Toleration

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  how Kubernetes writes a host port of all addresses
NODE_NAME: Final = "metadata.name"
_SPEC: Final = "spec.template.spec"

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodNeeds:
    """What a pod asks of its node."""

    rules: NodeRules = ANY_NODE
    claims: tuple[str, ...] = ()
    """Names of the PersistentVolumeClaims that it mounts."""


def pod_needs(spec: Json, *, planned_node: str) -> PodNeeds:
    """Return what the spec of a pod asks of its node.

    ``planned_node``: the node name that the operator itself has added to each affinity term
    (`punctual.kube.cluster.pods.on_node`); it is the plan's choice and no rule of the template.
    """
    rules = [
        *(_selected(key, value) for key, value in (spec.get("nodeSelector") or {}).items()),
        *_affinity(spec, planned_node),
    ]
    if name := spec.get("nodeName"):
        rules.append(Rule(f"{_SPEC}.nodeName: {name}", ((Requirement(NODE_NAME, "In", (name,), field=True),),)))
    return PodNeeds(
        NodeRules(
            rules=tuple(rules),
            tolerations=tuple(_toleration(t) for t in spec.get("tolerations") or ()),
            ports=frozenset(host_ports(spec)),
            devices=requested(spec).others,
        ),
        claims=tuple(_claims(spec)),
    )


def term_of(term: Json) -> Term:
    """Return the requirements of a node selector term."""
    return (
        *(_requirement(found) for found in term.get("matchExpressions") or ()),
        *(_requirement(found, field=True) for found in term.get("matchFields") or ()),
    )


def say_terms(terms: Iterable[Term]) -> str:
    """Return how a message names alternative terms."""
    return " or ".join(" and ".join(_say(found) for found in term) for term in terms)


def host_ports(spec: Json) -> Iterable[HostPort]:
    """Yield the ports that a pod takes on its node. On the host's network each container port is one."""
    sidecars = (c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always")
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else None)
            if number:
                yield HostPort(port.get("protocol") or "TCP", port.get("hostIP") or ANY_ADDRESS, number)


def _selected(key: str, value: str) -> Rule:
    return Rule(f"{_SPEC}.nodeSelector: {key}={value}", ((Requirement(key, "In", (value,)),),))


def _affinity(spec: Json, planned_node: str) -> Iterable[Rule]:
    nodes = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = nodes.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return
    planned = Requirement(NODE_NAME, "In", (planned_node,), field=True)
    terms = tuple(
        tuple(found for found in term_of(term) if found != planned) for term in required.get("nodeSelectorTerms") or ()
    )
    if all(terms):  # a term that asks for nothing but the planned node allows any
        yield Rule(f"{_SPEC}.affinity.nodeAffinity: {say_terms(terms)}", terms)


def _requirement(found: Json, *, field: bool = False) -> Requirement:
    return Requirement(found["key"], found["operator"], tuple(found.get("values") or ()), field=field)


def _say(found: Requirement) -> str:
    match found.operator:
        case "In":
            return f"{found.key} in ({', '.join(found.values)})"
        case "NotIn":
            return f"{found.key} not in ({', '.join(found.values)})"
        case "Exists":
            return f"{found.key} exists"
        case "DoesNotExist":
            return f"{found.key} does not exist"
        case _:
            return f"{found.key} {'>' if found.operator == 'Gt' else '<'} {''.join(found.values)}"


def _toleration(t: Json) -> Toleration:
    return Toleration(t.get("key") or "", t.get("operator") or "Equal", t.get("value") or "", t.get("effect") or "")


def _claims(spec: Json) -> Iterable[str]:
    for volume in spec.get("volumes") or ():
        if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
            yield claim
