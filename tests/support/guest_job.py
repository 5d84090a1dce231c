"""A guest job as the API server has it, with the pods of its chunks and the events about them."""

from punctual.guests.explain import explain
from punctual.guests.model import Decided
from punctual.linger.cost import Move
from punctual.linger.policy import decide
from punctual.notation.duration import format_time

NOW = 1_800_000_000.0


def at(seconds):
    return format_time(NOW + seconds)


def chunk(begin, end, *, node="n1", done=0, created=-30.0, ends=60.0, attempt=1):
    return {
        "begin": begin, "end": end, "node": node, "attempt": attempt, "kind": "Guest", "pod": f"sums-{begin}",
        "createdTime": at(created), "promisedEnd": at(ends), "done": done,
    }  # fmt: skip


CHUNKS = (chunk(100, 140, done=12), chunk(140, 180, node="n2", done=3, created=-5.0, attempt=2), chunk(180, 200))


def guest_job(*, state="Running", conditions=None, chunks=CHUNKS, done=115, spec=None, **status):
    """Return a job of 400 units without a deadline, created 100 seconds ago."""
    said = conditions or {"Admitted": ("True", "Guest", "it has no deadline and runs on what is left")}
    return {
        "kind": "DivisibleJob",
        "metadata": {"uid": "u-sums", "name": "sums", "namespace": "demo", "creationTimestamp": at(-100)},
        "spec": {"class": "Guest", "units": 400, "pool": "main"} | (spec or {}),
        "status": {
            "state": state,
            "conditions": [{"type": k, "status": s, "reason": r, "message": m} for k, (s, r, m) in said.items()],
            "applied": {"units": 400}, "units": {"done": done}, "chunks": list(chunks), "startTime": at(-90),
        } | status,
    }  # fmt: skip


def guest_pod(of=CHUNKS[0], *, phase="Running", **status):
    return {
        "metadata": {
            "uid": f"p-{of['pod']}", "name": of["pod"], "creationTimestamp": of["createdTime"],
            "labels": {"punctual.dev/job-uid": "u-sums", "punctual.dev/kind": "Guest"},
            "annotations": {"punctual.dev/begin": str(of["begin"]), "punctual.dev/end": str(of["end"])},
        },
        "spec": {"nodeName": of["node"]},
        "status": {"phase": phase, "containerStatuses": [{"state": {"running": {"startedAt": of["createdTime"]}}}]}
        | status,
    }  # fmt: skip


def told(age, *, policy="LingerLonger", acted=True):
    """Return a decision's event, as it was written when the pod's node had been busy for so long."""
    move = Move(0.65, 0.98, 5.0, left=200.0)
    reason, message = explain(
        Decided(
            job="u-sums", pod="p", node="n1", policy=policy, cause="Policy", decision=decide(policy, age, move),
            host_use=0.35, goal="n2", goal_use=0.02, move=move, left=200.0, acted=acted,
        )
    )  # fmt: skip
    return {
        "reason": reason, "message": message, "eventTime": at(age - 20), "lastTimestamp": None,
        "metadata": {"creationTimestamp": at(age - 20)},
    }  # fmt: skip


KUBELETS = {"reason": "Pulled", "message": "image is there", "lastTimestamp": at(-1)}
"""An event of another program."""
