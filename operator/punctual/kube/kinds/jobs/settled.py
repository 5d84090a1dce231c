"""Jobs that the takeover puts aside: settled ones (ended, refused, or a dry run), and oversized ones that hold nothing.

There may be ten thousands of settled jobs. Of an oversized one, the stamp alone takes the API server seconds.

They are neither stamped nor told to a Pool. The fence holds for them all the same:

- The list that put a job aside, because the job is settled in it or because it has only unfinished jobs and lacks this
  one, was read after the lease was acquired. What an earlier leader writes onto it later is
  either another answer without a promise, which changes nothing, or a promise.
- Nothing is decided about the job before it is stamped and read: all that concerns it (an edit, its namespace, its
  profile, its pool, one of its pods) leads to `late`. After that stamp the API server refuses earlier leaders; what one
  of them wrote before it is read, and is taken over as if it had been there from the beginning.
- An earlier leader's promise is seen although nothing asks: the watch shows it (`Jobs.on_unsettled`). If its event
  comes before the page of the list that lacks it is read, the job is not put aside; if after, it is read then.
- Only the leader that ended a job can write onto it, and later ones, which have read that it ended.
- An oversized job that is not settled is read as soon as the takeover is done.
"""

from typing import Final

from punctual import reasons
from punctual.kube.actors.actors import PoolActors
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.client import Json
from punctual.kube.known.jobs import ENDED, KnownJob, settled
from punctual.kube.known.oversize import MARK
from punctual.kube.known.translate import undecided
from punctual.scheduling.model.events import PodObserved

EDGE: Final = frozenset({
    reasons.NOT_ALLOWED, reasons.PROFILE_NOT_FOUND, reasons.POD_REFUSED, reasons.RESERVATION_NOT_FOUND,
    reasons.RESERVATION_REFUSED, reasons.POD_TOO_LARGE,
})  # fmt: skip
"""Reasons of refusals by the admission gate. The Pool refuses for want of processors."""


def put_aside(caches: Caches, uid: str, body: Json | None) -> bool:
    """Put a job aside if it is settled and nothing of it is left to be done, or oversized; also one that is gone.

    Without a body: a list of the unfinished jobs does not contain it, so it is finished.
    """
    jobs = caches.directory.jobs
    known = jobs.get(uid)
    if uid in jobs.gone or (known is None and body is None):
        return True
    if not (_is_settled(known, body) or _is_oversized(body)):
        return False
    if any(not _stays(pod) for pod in caches.pods.of_job(uid)):
        return False
    if body is not None:
        jobs.observe(body)
    known = jobs[uid]
    if known.settled == reasons.POOL_NOT_FOUND and caches.directory.pools.named(known.owner.pool):
        return False
    known.term.aside = known.settled
    return True


def is_due(known: KnownJob, caches: Caches, actors: PoolActors) -> bool:
    """Return whether a job that was put aside ends by the clock, or the cause of its refusal may have changed."""
    owner, why, reservations = known.owner, known.term.aside, caches.directory.reservations
    if why == ENDED:
        return b"ttlSecondsAfterFinished" in known.spec
    pool = caches.directory.pools.named(owner.pool)
    if pool is not None and pool.term.unstamped:
        return False
    due = actors.runs(owner.pool) == (why == reasons.POOL_NOT_FOUND)
    if due:
        return True
    match why:
        case reasons.NOT_ALLOWED:
            selector = pool.term.in_force.namespace_selector if pool else None
            due = selector is None or selector.matches(caches.labels(owner.namespace))
        case reasons.PROFILE_NOT_FOUND:
            due = caches.directory.profiles.named(known.profile, owner.namespace) is not None
        case reasons.RESERVATION_NOT_FOUND | reasons.RESERVATION_REFUSED:
            due = isinstance(reservations.inside(known.reservation, owner.namespace, owner.pool), str)
        case reasons.POD_REFUSED | reasons.POD_TOO_LARGE:
            due = True  # the API server is asked
        case reasons.SUSPENDED | reasons.DRY_RUN:
            return False
    if b"ttlSecondsAfterFinished" in known.spec:  # refused is finished
        return True
    return due


def refused_at_edge(known: KnownJob) -> bool:
    """Return whether a job was refused by the admission gate, not for want of processors."""
    verdict = known.term.record.admitted if known.term.record else None
    return (known.term.aside or (verdict.reason if verdict else "")) in EDGE


def depends_on_others(known: KnownJob) -> bool:
    """Return whether a change of its pool, profile or reservation may change a job's answer."""
    if why := known.term.aside:
        return why in EDGE or why == reasons.POOL_NOT_FOUND
    return undecided(known.term.record) or refused_at_edge(known)


def _is_settled(known: KnownJob | None, body: Json | None) -> bool:
    # the watch shows what the list does not contain yet
    return (known is None or known.settled != "") and (body is None or settled(body) != "")


def _is_oversized(body: Json | None) -> bool:
    """Return whether a job is oversized and has no processors, so that others can be decided before it is read."""
    status = (body or {}).get("status") or {}
    return body is not None and MARK in body and not (status.get("promise") or status.get("chunks"))


def _stays(pod: PodObserved) -> bool:
    """Return whether a pod of a settled job stays as it is: its log is read, and it takes no processor."""
    return pod.phase == "Failed" or (pod.kind == "Reduce" and pod.phase == "Succeeded")
