"""Which pool is told of each chunk pod, by the informer and by the agents' reports.

A pod's events go to the pool that was told of it first, until it is gone: a job that is gone leaves pods behind that
keep their processors. This part decides nothing and writes nothing.
"""

from collections.abc import Iterable

from punctual import wire
from punctual.kube.actors.actors import PoolActors
from punctual.kube.actors.guests import Guests
from punctual.kube.actors.tools import AllKinds
from punctual.kube.agents.progress import to_progress
from punctual.kube.cluster.caches import Caches
from punctual.kube.known.jobs import KnownJob
from punctual.scheduling.model.events import CreateRefused, PodGone, PodObserved, Progress, Reported


class TermPods:
    """Chunk pods of all pools, for one term."""

    def __init__(self, caches: Caches, actors: PoolActors, guests: Guests, kinds: AllKinds) -> None:
        self._caches = caches
        self._jobs = caches.directory.jobs
        self._kinds = kinds
        self._actors = actors
        self._guests = guests
        self._pools: dict[str, str] = {}  # the pool that was told of a pod, by uid
        self._lent: set[str] = set()  # those of them that are guests (uid)
        self._counted: dict[str, str] = {}  # the pool that counts what a pod takes of its node, by uid

    def restored(self, pool: str) -> tuple[list[PodObserved], list[PodObserved]]:
        """Return the pods of a pool that starts, after its jobs, and those of its guests."""
        pods = [pod for pod in self._caches.pods.by_key.values() if self._pool_of(pod) == pool]
        self._pools.update((pod.uid, pool) for pod in pods)
        self._lent.update(pod.uid for pod in pods if pod.kind == "Guest")
        self._counted.update((pod.uid, pool) for pod in pods if _takes_place(pod))
        return [pod for pod in pods if pod.kind != "Guest"], [pod for pod in pods if pod.kind == "Guest"]

    def changed(self, job: str, event: PodObserved | PodGone | CreateRefused) -> None:
        """Take in a change of a pod of a job (uid), or that there will be none."""
        if isinstance(event, CreateRefused):
            pool, lent = self._told(job), event.kind == "Guest"
        else:
            pool, lent = self._route(job, event)
        if pool and lent:
            self._guests.tell(pool, event)
        elif pool:
            self._actors.tell(pool, event)

    def _route(self, job: str, event: PodObserved | PodGone) -> tuple[str | None, bool]:
        """Return the pool that is told of a change of a pod, and whether the pod is a guest."""
        pool = self._pools.get(event.uid)
        if pool is None:
            pool = self._pool_of(event) if isinstance(event, PodObserved) else self._told(job)
        known = self._jobs.get(job)
        if pool is None and known and known.term.aside is not None and isinstance(event, PodObserved):
            self._kinds.signal("job", job)  # `job_was_read` follows
        lent = event.uid in self._lent
        if isinstance(event, PodGone):
            self._pools.pop(event.uid, None)
            self._counted.pop(event.uid, None)
            self._lent.discard(event.uid)
        elif pool:
            self._pools[event.uid] = pool
            if lent := event.kind == "Guest":
                self._lent.add(event.uid)
            before, counting = self._counted.pop(event.uid, None), pool if _takes_place(event) else None
            if counting:
                self._counted[event.uid] = counting
            if counting != before:
                self._caches.inventory.recount(event.node)
        return pool, lent

    def counting(self, pod: str) -> str | None:
        """Return the pool that counts what a pod (uid) takes of its node.

        A Pool counts all pods that it is told of; what a guest requests, no Pool knows of.
        """
        return self._counted.get(pod)

    def job_was_read(self, known: KnownJob) -> None:
        """Take in the pods of a job that was read after the takeover."""
        for pod in self._caches.pods.of_job(known.owner.uid):
            self.changed(pod.job, pod)

    def reported(self, node: str, pods: Iterable[wire.PodReport]) -> list[wire.PodReport]:
        """Take in what a node's report says of its chunk pods: each pool is told of its own. Returns the guests."""
        guests: list[wire.PodReport] = []
        pools: dict[str, list[Progress]] = {}
        for pod in pods:
            if pod.uid in self._lent:
                guests.append(pod)
            elif pool := self._told(self._caches.pods.job_of(pod.uid) or ""):
                pools.setdefault(pool, []).append(to_progress(pod))
        for pool, own in pools.items():
            self._actors.tell(pool, Reported(node, tuple(own)))
        return guests

    def _pool_of(self, pod: PodObserved) -> str | None:
        """Return the pool that has the processor of a pod: that of its job; if the job is gone, that of its node."""
        known = self._jobs.get(pod.job)
        if known is None or known.deleting:
            return self._caches.inventory.owner(pod.node)
        return known.term.pool

    def _told(self, job: str) -> str | None:
        """Return the pool that was told of a job (uid)."""
        known = self._jobs.get(job)
        return None if known is None else known.term.pool


def _takes_place(pod: PodObserved) -> bool:
    """Return whether its pool counts what a pod takes: a guest takes nothing, unless something added requests."""
    return pod.kind != "Guest" or not pod.requests
