"""Jobs that are settled, made straight with the status that a leader gave them: refused with an offer, or ended."""

import asyncio
import itertools
import time

from server import job

from punctual.kube.api.resources import JOBS
from punctual.kube.cluster.client import ApiClient
from punctual.notation.duration import format_time

UNDER_WAY = 32
"""Jobs made at once."""


def refused(now, *, epoch=1):
    """Return the status of a job that was refused, with an offer."""
    message = (
        "100 units due in 1.0s need 12 processors: setup 1.0s and margin 2.0s leave no time for work; "
        "200 of 200 are free early enough, the first in 0.0s, and finish 0 units"
    )
    return {
        "conditions": [
            _condition("Admitted", "False", "InfeasibleCapacity", now, message),
            _condition("SpecApplied", "True", "Applied", now, "the spec is in force"),
        ],
        "state": "Refused",
        "epoch": epoch,
        "observedGeneration": 1,
        "units": {"done": 0, "running": 0, "total": 100},
        "progress": "0%",
        "applied": {"deadlineTime": format_time(now + 1), "suspend": False},
        "offer": {"validUntilTime": format_time(now + 600), "largestLoad": 40, "earliestDeadline": "16.5s"},
        "finishTime": format_time(now),
        "cost": {"perUnit": 0.1, "transferPerUnit": 0.0, "transferSetup": 0.0, "startup": 1.0},
    }


def ended(now, *, epoch=1):
    """Return the status of a job that was promised and is done."""
    return {
        **refused(now, epoch=epoch),
        "state": "Completed",
        "conditions": [
            _condition("Admitted", "True", "Feasible", now, "100 units on 4 processors from 0.0s on, margin 2.0s"),
            _condition("OnTrack", "True", "OnTrack", now, "the forecast is before the deadline"),
            _condition("Completed", "True", "Completed", now, "all units are done"),
        ],
        "units": {"done": 100, "running": 0, "total": 100},
        "progress": "100%",
        "promise": {
            "deadline": format_time(now + 600),
            "finish": format_time(now + 10),
            "margin": "2s",
            "processors": 4,
            "start": format_time(now),
        },
        "offer": None,
        "completed": [{"begin": 0, "end": 100}],
        "startTime": format_time(now),
        "finishTime": format_time(now + 10),
    }


def _condition(kind, status, reason, now, message):
    since = {"lastTransitionTime": format_time(now), "observedGeneration": 1}
    return {"type": kind, "status": status, "reason": reason, "message": message, **since}


async def settle(client: ApiClient, namespace, pool, count, *, prefix="settled", epoch=1):
    """Make so many jobs of a pool, nine in ten refused and the others ended."""
    now, collection, numbers = int(time.time()), JOBS.path(namespace=namespace), itertools.count()

    async def make():
        while (n := next(numbers)) < count:
            body = job(f"{prefix}-{n}", namespace, pool, deadline="1s")
            made = await client.create(collection, body)
            status = (refused if n % 10 else ended)(now, epoch=epoch)
            status = {key: value for key, value in status.items() if value is not None}
            path = JOBS.path(namespace=namespace, name=f"{prefix}-{n}")
            await client.put_status(path, {**made, "status": status}, field_manager="settled")

    await asyncio.gather(*(make() for _ in range(UNDER_WAY)))
