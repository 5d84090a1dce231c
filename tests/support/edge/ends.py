"""How a play has ended, as a value: two runs with the same requests of users must end the same."""

import collections

from edge.kinds import kind_of
from punctual.labels import JOB_UID_LABEL

WANTED = {
    "DivisibleJob": ("state", "reason", "completed", "chunks"),
    "Pool": ("processors", "free", "queue", "applied"),
    "Reservation": ("state", "windows", "finishTime"),
    "TargetRate": ("target", "pods"),
    "Profile": (),
    "Node": (),
    "ConfigMap": (),
    "PersistentVolumeClaim": (),
    "Lease": (),
}
"""What must be equal: of each kind the names of its objects, their spec, and these fields of their status."""


def end_of(world):
    """Return what is left of each object, by kind and name. What has an owner is named for it."""
    found = {}
    for path, body in world.server.store.objects.items():
        kind = kind_of(path).kind
        owners = body["metadata"].get("ownerReferences")
        name = f"of {owners[0]['name']}" if owners else body["metadata"]["name"]
        if kind in WANTED:
            status = body.get("status") or {}
            spec = body.get("spec") if kind != "Lease" else None
            if spec and "jobRef" in spec:  # the Job's uid, and its own clock
                spec = {field: value for field, value in spec.items() if field not in {"jobRef", "deadlineTime"}}
            found[kind, name] = {"spec": spec, **{name: _wanted(name, status.get(name)) for name in WANTED[kind]}}
    kept = collections.Counter(_stays(path, body) for path, body in world.server.store.objects.items())
    return found | {("Pod", where): count for where, count in kept.items() if where}


def _wanted(name, value):
    """Return what must be equal in a field. A window is booked on nodes that are free then, which faults may change."""
    if name != "windows" or value is None:
        return value
    return [{**window, "nodes": sum(node["processors"] for node in window.get("nodes") or ())} for window in value]


def _stays(path, body):
    """Return the node of a placeholder. Pods of jobs are checked by the ledger."""
    if kind_of(path).kind != "Pod" or JOB_UID_LABEL in (body["metadata"].get("labels") or {}):
        return ""
    return f"on {body['spec'].get('nodeName')}"


def differences(faulty, plain):
    """Return what is different, as sentences."""
    return [
        f"{kind} {name} is {here} at the end, and without faults {there}"
        for kind, name in sorted(faulty.keys() | plain.keys())
        if (here := faulty.get((kind, name))) != (there := plain.get((kind, name)))
    ]


GIVEN = {
    "delete", "recreate", "suspend batch job", "delete batch job", "delete promise", "edit batch deadline",
    "start anyway",
}  # fmt: skip
MORE = {"pods": 1, "events": 1, "configmaps": 0}
"""Creates and deletes that a fault may cause for each job."""


def surplus(world, plain):
    """Return what was created or deleted more often than without faults, and more often than the faults explain.

    What users do is theirs: jobs that they delete or create again are left out.
    """
    given = {act.target for act in world.plan.acts if act.what in GIVEN}
    faults = len(world.struck)
    for key, count in sorted(world.history.counts.items()):
        change, plural, owner = key
        before = plain.history.counts[key]
        if owner not in given and plural in MORE and count > before + MORE[plural] * faults:
            yield f"{plural} of {owner}: {count} {change}, {before} without faults, {faults} faults"
