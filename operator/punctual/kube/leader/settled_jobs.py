"""Jobs that the takeover puts aside: settled ones (ended, refused, or a dry run), and oversized ones that hold nothing.

There may be ten thousands of settled jobs. Of an oversized one, the stamp alone takes the API server seconds.

They are neither stamped nor told to a Pool. The fence holds for them all the same:

- The list that put a job aside, because the job is settled in it or because it has only unfinished jobs and lacks this
  one, was read after the lease was acquired. What an earlier leader writes onto it later is
  either another answer without a promise, which changes nothing, or a promise.
- Nothing is decided about the job before it is stamped and read: all that concerns it (an edit, its namespace, its
  profile, its pool, one of its pods) leads to `late`. After that stamp the API server refuses earlier leaders; what one
  of them wrote before it is read, and is taken over as if it had been there from the beginning.
- An earlier leader's promise is seen although nothing asks: the watch shows it (`Directory.on_unsettled`). If its event
  comes before the page of the list that lacks it is read, the job is not put aside; if after, it is read then.
- Only the leader that ended a job can write onto it, and later ones, which have read that it ended.
- An oversized job that is not settled is read as soon as the takeover is done.
"""

import asyncio
from collections.abc import Awaitable, Callable

from punctual import reasons
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.client import Json
from punctual.kube.cluster.directory import ENDED, KnownJob, settled
from punctual.kube.cluster.oversize import MARK
from punctual.kube.leader.jobs import Jobs
from punctual.kube.takeover.statuses import Statuses
from punctual.scheduling.model.events import PodObserved


class SettledJobs:
    """``put_aside`` is for the takeover; ``run`` reads, after it, those for which something is due."""

    def __init__(
        self,
        caches: Caches,
        statuses: Statuses,
        jobs: Jobs,
        *,
        runs: Callable[[str], bool],
        reserved: Callable[[KnownJob], str | tuple[str, str] | None],
        caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._caches = caches
        self._directory = caches.directory
        self._statuses = statuses
        self._jobs = jobs
        self._runs = runs
        self._reserved = reserved
        self._caught_up = caught_up

    def put_aside(self, uid: str, body: Json | None) -> bool:
        """Put a job aside if it is settled and nothing of it is left to be done, or oversized; also one that is gone.

        Without a body: a list of the unfinished jobs does not contain it, so it is finished.
        """
        known = self._directory.jobs.get(uid)
        if uid in self._statuses.gone or (known is None and body is None):
            return True
        if not (_is_settled(known, body) or _is_oversized(body)):
            return False
        if any(not _stays(pod) for pod in self._caches.pods.of_job(uid)):
            return False
        if body is not None:
            self._directory.observe_job(body)
        known = self._directory.jobs[uid]
        if known.settled == reasons.POOL_NOT_FOUND and known.owner.pool in self._directory.pools:
            return False
        self._statuses.aside[uid] = known.settled
        return True

    async def run(self) -> None:
        """Read, one by one, the jobs for which something is due. Decisions are written first."""
        for uid, why in list(self._statuses.aside.items()):
            await asyncio.sleep(0)
            known = self._directory.jobs.get(uid)
            if known is not None and uid in self._statuses.aside and self._is_due(known, why):
                await self._caught_up()
                await self._jobs.read_late(known)

    def unsettled(self, uid: str) -> None:
        """Take up a job with a status that was written since and is not settled."""
        if uid in self._statuses.aside and (known := self._directory.jobs.get(uid)):
            self._jobs.consider(known)

    def _is_due(self, known: KnownJob, why: str) -> bool:
        """Return whether a job ends by the clock, or the cause of its refusal may have changed."""
        owner = known.owner
        if why == ENDED:
            return b"ttlSecondsAfterFinished" in known.spec
        if owner.pool in self._statuses.unstamped:
            return False
        due = self._runs(owner.pool) == (why == reasons.POOL_NOT_FOUND)
        if due:
            return True
        match why:
            case reasons.NOT_ALLOWED:
                selector = self._directory.pools[owner.pool].term.in_force.namespace_selector
                due = selector is None or selector.matches(self._caches.labels(owner.namespace))
            case reasons.PROFILE_NOT_FOUND:
                due = (owner.namespace, known.profile) in self._directory.profiles
            case reasons.RESERVATION_NOT_FOUND | reasons.RESERVATION_REFUSED:
                due = isinstance(self._reserved(known), str)
            case reasons.POD_REFUSED | reasons.POD_TOO_LARGE:
                due = True  # the API server is asked
            case reasons.SUSPENDED | reasons.DRY_RUN:
                return False
        if b"ttlSecondsAfterFinished" in known.spec:  # refused is finished
            return True
        return due


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
