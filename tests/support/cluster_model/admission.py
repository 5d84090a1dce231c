"""Admission plugins: functions that change a pod's spec before it is stored, each for one namespace."""

import copy

NOT_READY = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for what in ("not-ready", "unreachable")
]


def containers(spec):
    return [*spec["containers"], *(spec.get("initContainers") or ())]


def limit_range(**defaults):
    """Return the plugin of a LimitRange with default requests (`cpu="20m"`)."""

    def plugin(spec):
        for container in containers(spec):
            resources = container.setdefault("resources", {})
            named = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
            added = {name: quantity for name, quantity in defaults.items() if name not in named}
            resources["requests"] = {**(resources.get("requests") or {}), **added}

    return plugin


def injects(container, *, at=0):
    """Return a webhook that puts a container in front of the others, or at another place."""

    def plugin(spec):
        spec["containers"].insert(len(spec["containers"]) if at is None else at, copy.deepcopy(container))

    return plugin


def overhead(**amounts):
    """Return the plugin of a RuntimeClass with an overhead."""
    return lambda spec: spec.update(overhead=amounts)


def admitted(body, plugins):
    """Return a pod as the API server stores it."""
    stored = copy.deepcopy(body)
    for plugin in plugins:
        plugin(stored["spec"])
    stored["spec"].setdefault("schedulerName", "default-scheduler")
    stored["spec"]["tolerations"] = [*(stored["spec"].get("tolerations") or ()), *NOT_READY]
    return stored
