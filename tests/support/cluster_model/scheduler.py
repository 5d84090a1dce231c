"""Kube-scheduler: the filters that decide whether a node takes a pod, in its own order and words."""

from collections import Counter

from cluster_model import amounts

CAPACITY = ("Insufficient cpu", "Insufficient memory", "Too many pods")
AFFINITY = "node(s) didn't match Pod's node affinity/selector"


def objection(pod, node, there):  # noqa: PLR0911  one line per filter
    """Return why a node does not take a pod beside those that are there (specs), or None."""
    spec = pod["spec"]
    labels = node["metadata"].get("labels") or {}
    tolerations = spec.get("tolerations") or ()
    for taint in node["spec"].get("taints") or ():
        if taint["effect"] != "PreferNoSchedule" and not any(_tolerates(t, taint) for t in tolerations):
            return f"node(s) had untolerated taint(s) {{{taint['key']}: {taint.get('value', '')}}}"
    if not _selected(spec, labels, node["metadata"]["name"]):
        return AFFINITY
    ports = _ports(spec)
    if any(ports & _ports(other["spec"]) for other in there):
        return "node(s) didn't have free ports for the requested pod ports"
    free = left(node, there)
    for name, needed in amounts.requests(spec).items():
        if needed > free.get(name, 0) + 1e-9:
            return f"Insufficient {name}"
    if free["pods"] < 1:
        return "Too many pods"
    if any(_repels(pod, other) or _repels(other, pod) for other in there):
        return "node(s) didn't match pod anti-affinity rules"
    return None


def left(node, there):
    """Return what pods leave of a node."""
    allocatable = {name: amounts.amount(q) for name, q in node["status"]["allocatable"].items()}
    taken = amounts.add({"pods": len(there)}, *(amounts.requests(pod["spec"]) for pod in there))
    return {name: round(there - taken.get(name, 0), 6) for name, there in allocatable.items()}


def place(pod, nodes, pods):
    """Return the node for a pod and None, or None and its condition PodScheduled (None: it is not looked at).

    ``pods``: those that are bound and have not ended.
    """
    spec = pod["spec"]
    if spec.get("schedulingGates"):
        said = "Scheduling is blocked due to non-empty scheduling gates"
        return None, _unplaced("SchedulingGated", said)
    if spec["schedulerName"] != "default-scheduler":
        return None, None
    why = Counter()
    for node in nodes:
        name = node["metadata"]["name"]
        found = objection(pod, node, [p for p in pods if p["spec"]["nodeName"] == name])
        if found is None:
            return name, None
        why[found] += 1
    said = ", ".join(f"{count} {words}" for words, count in sorted(why.items()))
    return None, _unplaced("Unschedulable", f"0/{len(nodes)} nodes are available: {said}.")


def _unplaced(reason, message):
    return {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}


def _tolerates(toleration, taint):
    if (toleration.get("effect") or taint["effect"]) != taint["effect"]:
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    if toleration["key"] != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _selected(spec, labels, name):
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_matches(term, labels, name) for term in required["nodeSelectorTerms"])


def _matches(term, labels, name):
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_holds(e, labels.get(e["key"])) for e in expressions) and all(_holds(f, name) for f in fields)


def _holds(requirement, value):
    match requirement["operator"]:
        case "In":
            return value in requirement["values"]
        case "NotIn":
            return value not in requirement["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    raise NotImplementedError(requirement["operator"])


def _ports(spec):
    return {
        (port["hostPort"], port.get("protocol", "TCP"))
        for container in spec["containers"]
        for port in container.get("ports") or ()
        if port.get("hostPort")
    }


def _repels(pod, other):
    terms = ((pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    meta = other["metadata"]
    return any(
        # by hostname: only pods of the same node are compared
        ("namespaceSelector" in term or meta["namespace"] == pod["metadata"]["namespace"])
        and (term["labelSelector"].get("matchLabels") or {}).items() <= (meta.get("labels") or {}).items()
        for term in terms or ()
    )
