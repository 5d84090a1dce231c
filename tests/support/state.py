"""What kubectl would get from a cluster that a `World` stands for: pools, jobs with their statuses."""

from __future__ import annotations

from world import World

from punctual.kube import api
from punctual.kube.known.jobs import Owner
from punctual.kube.known.translate import job_status, pool_status, to_pool_spec
from punctual.notation.duration import format_duration, format_time
from punctual.scheduling.model.job import Job
from punctual.scheduling.model.pool_spec import PoolSpec

NOW = 1_800_000_000.0
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "work"}]}}


def pool_body(name: str = "main", *, labels: dict[str, str] | None = None, **spec) -> dict:
    asked = {
        "nodeSelector": {"matchLabels": {"pool": name}},
        "processor": {"cpu": "1"},
        "headroom": "0%",
        "margin": "2s",
        **spec,
    }
    if labels:
        asked["namespaceSelector"] = {"matchLabels": labels}
    meta = {"name": name, "uid": name, "generation": 1, "creationTimestamp": format_time(NOW - 100)}
    return {"apiVersion": "punctual.dev/v1alpha1", "kind": "Pool", "metadata": meta, "spec": asked}


def spec_of(body: dict) -> PoolSpec:
    return to_pool_spec(api.parse(api.Pool, body))


def manifest(job: Job, pool: str = "main") -> dict:
    """Return a job as its user would write it."""
    cost = job.cost and {"perUnit": f"{job.cost.chi}s", "startup": f"{job.cost.theta_cp}s"}
    reduce = job.reduce_duration and {"duration": f"{job.reduce_duration}s", "template": TEMPLATE}
    asked = {"min": job.min_processors, "max": job.max_processors}
    optional = {"cost": cost, "reduce": reduce, "processors": {k: v for k, v in asked.items() if v is not None}}
    spec = {"pool": pool, "units": job.units, "deadline": format_duration(job.deadline - job.arrival)}
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "DivisibleJob",
        "metadata": {"name": job.name, "namespace": job.namespace},
        "spec": {**spec, "template": TEMPLATE, **{k: v for k, v in optional.items() if v}},
    }


def state(w: World, body: dict) -> dict:
    """Return the list of all of it, as `kubectl get -o json` prints it."""
    items = [{**body, "status": pool_status(w.pool_record, transition_times={}, now=w.now)}]
    for uid, job in w.jobs.items():
        made = manifest(job, body["metadata"]["name"])
        made["metadata"] |= {"uid": uid, "generation": 1, "creationTimestamp": format_time(job.arrival)}
        if uid in w.records:
            owner = Owner(uid, job.namespace, job.name, body["metadata"]["name"], job.units)
            made["status"] = job_status(w.records[uid], job, owner=owner, transition_times={}, now=w.now)
        items.append(made)
    return {"apiVersion": "v1", "kind": "List", "items": items}
