"""Bodies of ordinary Jobs with a deadline, and of their pods, as the API server has them."""

CREATED = "2030-01-01T00:00:00Z"
GATE = {"name": "punctual.dev/chunk"}
TOLERATION = {"key": "punctual.dev/pool", "operator": "Equal", "value": "main", "effect": "NoSchedule"}


def batch_body(name="nightly", *, uid="b1", asked=None, labels=None, cpu="1", memory="64Mi", pod=None, **more):
    """Return a Job of four indexes on two processors. ``asked``: its annotations. ``more``: of its spec, and meta."""
    requests = {"cpu": cpu, "memory": memory}
    container = {"name": "work", "image": "w:1", "resources": {"requests": {k: v for k, v in requests.items() if v}}}
    asked = {"punctual.dev/deadline": "45m", "punctual.dev/cost-per-unit": "20s"} if asked is None else asked
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": uid,
        "creationTimestamp": CREATED,
        "labels": {"punctual.dev/pool": "main"} if labels is None else labels,
        "annotations": asked,
        **more.pop("meta", {}),
    }
    spec = {
        "suspend": True,
        "completions": 4,
        "parallelism": 2,
        "completionMode": "Indexed",
        "template": {"spec": {"restartPolicy": "Never", "containers": [container], **(pod or {})}},
    }
    status = more.pop("status", {})
    return {"metadata": meta, "spec": {k: v for k, v in {**spec, **more}.items() if v is not None}, "status": status}


def owned_by_job(name, uid):
    """Return the reference of a pod to the Job that it is of."""
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}


def gated_pod(name, *, uid=None, job="b1", index=None, gates=(GATE,), **meta):
    """Return a pod of a Job (uid) that waits at the gate."""
    notes = {} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or name,
            "creationTimestamp": CREATED,
            "annotations": notes,
            "ownerReferences": [owned_by_job("nightly", job)],
            **meta,
        },
        "spec": {"schedulingGates": list(gates), "containers": [{"name": "work", "image": "w:1"}]},
        "status": {"phase": "Pending"},
    }


def started_pod(name, *, claims="d1", begin=0, node="n1", **more):
    """Return a pod of a Job that has left the gate, as a chunk of a DivisibleJob (uid). ``node`` None: it has none."""
    body = gated_pod(name, gates=[], labels={"punctual.dev/job-uid": claims}, **more)
    notes = {"begin": begin, "end": begin + 1, "attempt": 0}
    body["metadata"]["annotations"] |= {f"punctual.dev/{key}": str(value) for key, value in notes.items()}
    return body | {"spec": body["spec"] | ({"nodeName": node} if node else {})}
