"""The caches of every replica, leader or standby: pods, nodes and namespaces by informers, Punctual's kinds by kopf.

A standby with warm caches can lead as soon as it acquires the lease. Only the leader's term is registered as a
listener. The caches live on the main loop; kopf's thread posts into it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from punctual.kube import api
from punctual.kube.cluster.client import ApiClient, Json
from punctual.kube.cluster.directory import Directory, KnownJob, KnownPool, KnownReservation
from punctual.kube.cluster.informer import Change, Informer
from punctual.kube.cluster.nodes import Inventory, Node, project_node
from punctual.kube.cluster.placeholder_pod import Placeholder, PlaceholderSettings, placeholder
from punctual.kube.cluster.pods import ForeignPod, Owner, foreign_pod, is_chunk_of, project_pod
from punctual.kube.cluster.resources import NODES, PODS, Resource
from punctual.scheduling.model.events import Event, NodeGone, NodeObserved, PodGone, PodObserved

NAMESPACES = Resource("v1", "namespaces")
LATE: Final = 1000
"""Maximum number of expected pods of deleted jobs. A pod that never appears is not reported."""


class Listener(Protocol):
    """The leader's term, which is called on changes."""

    def job_changed(self, known: KnownJob) -> None:
        """Handle a job that is new, edited or being deleted."""

    def job_gone(self, known: KnownJob) -> None:
        """Handle a job that is gone."""

    def pool_changed(self, known: KnownPool) -> None:
        """Handle a pool that is new, edited or being deleted."""

    def pool_gone(self, known: KnownPool) -> None:
        """Handle a pool that is gone."""

    def reservation_changed(self, known: KnownReservation) -> None:
        """Handle a reservation that is new or being deleted."""

    def reservation_gone(self, known: KnownReservation) -> None:
        """Handle a reservation that is gone."""

    def profile_changed(self, namespace: str, name: str) -> None:
        """Handle a profile that is new or edited."""

    def namespace_changed(self, namespace: str) -> None:
        """Handle changed labels of a namespace."""

    def node_changed(self, node: Node) -> None:
        """Handle a new or changed node."""

    def node_gone(self, name: str) -> None:
        """Handle a node that is gone."""

    def pod(self, key: str, job: str, event: PodObserved | PodGone) -> None:
        """Handle a change of a chunk pod ("namespace/name")."""

    def placeholder(self, key: str, seen: Placeholder, *, gone: bool) -> None:
        """Handle a change of a placeholder ("namespace/name")."""

    def tell(self, pool: str, event: Event) -> None:
        """Send an event to a pool."""


class _Pod(NamedTuple):
    """A pod as it was last seen."""

    claim: PodObserved | None
    """Its state, if its labels claim that it belongs to a job."""
    room: ForeignPod | None
    """The capacity that it takes on its node if it belongs to no job."""
    keeps: Placeholder | None = None
    """Its state, if it is a placeholder."""


class Caches:
    """The directory, the node inventory, chunk pods, and the labels of namespaces."""

    def __init__(self, client: ApiClient, manner: PlaceholderSettings | None = None) -> None:
        self.manner = manner or PlaceholderSettings(namespace="default")
        """The settings of placeholders."""
        self.directory = Directory()
        self.inventory = Inventory(self._tell, yielding=self.manner.priority)
        self.placeholders: dict[str, Placeholder] = {}
        """By "namespace/name"."""
        self.listener: Listener | None = None
        self.on_node_gone: Callable[[str], None] = lambda _: None
        """Called for each node that is gone, on leaders and standbys."""
        self.pods: dict[str, PodObserved] = {}
        """Chunk pods, by "namespace/name"."""
        self._of_job: dict[str, dict[str, None]] = {}  # their keys, by job
        self.directory.on_job = self._settle_claims
        self._claims: dict[str, dict[str, _Pod]] = {}  # pods that claim an unknown job, by job and key
        self._claimed: dict[str, str] = {}  # the claimed job, by key
        self._late: dict[str, Owner] = {}  # expected pods of deleted jobs, by key
        self._rooms: dict[str, ForeignPod] = {}  # the capacity counted as taken by other pods, by key
        self._jobs: dict[str, str] = {}  # of pods, by uid
        self._on_node: dict[str, dict[str, None]] = {}  # uids of chunk pods by node
        self.informers: tuple[Informer[Any], ...] = (
            Informer(client, NODES.path(), project=project_node, on_change=self._on_node_change),
            Informer(client, PODS.path(), project=self._seen, on_change=self._on_pod_change),
            Informer(client, NAMESPACES.path(), project=_labels, on_change=self._on_namespace_change),
        )
        self._namespaces: dict[str, Mapping[str, str]] = {}

    async def run(self) -> None:
        """Watch pods, nodes and namespaces until cancelled."""
        async with asyncio.TaskGroup() as group:
            runs: list[Coroutine[Any, Any, None]] = [informer.run() for informer in self.informers]
            for run in runs:
                group.create_task(run)

    async def synced(self) -> None:
        """Wait until every existing object has been delivered once."""
        for informer in self.informers:
            await informer.synced.wait()

    @property
    def ready(self) -> bool:
        """Whether every existing object has been delivered once."""
        return all(informer.synced.is_set() for informer in self.informers)

    def labels(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace. Empty while it is not known."""
        return self._namespaces.get(namespace, {})

    def job_of(self, pod: str) -> str | None:
        """Return the job of a chunk pod (uid)."""
        return self._jobs.get(pod)

    def pods_on(self, node: str) -> Mapping[str, None]:
        """Return the uids of the chunk pods on a node."""
        return self._on_node.get(node, {})

    def pods_of(self, job: str) -> list[tuple[str, PodObserved]]:
        """Return the chunk pods of a job (uid), by "namespace/name"."""
        return [(key, self.pods[key]) for key in self._of_job.get(job, ())]

    def expect(self, owner: Owner, pods: Iterable[str]) -> None:
        """Expect pods ("namespace/name") of a job that is gone. They count as chunk pods when they appear."""
        self._late |= dict.fromkeys(pods, owner)
        for key in list(islice(self._late, max(0, len(self._late) - LATE))):
            del self._late[key]

    # Punctual's kinds, from kopf

    def observe(self, plural: str, change: str | None, body: Json) -> None:
        """Process an event of kopf. ``change`` is None for an object of the first list."""
        gone = change == "DELETED"
        match plural:
            case "pools":
                self._observe_pool(body, gone=gone)
            case "divisiblejobs":
                self._observe_job(body, gone=gone)
            case "profiles":
                self._observe_profile(body, gone=gone)
            case "reservations":
                self._observe_reservation(body, gone=gone)

    def _observe_job(self, body: Json, *, gone: bool) -> None:
        if gone:
            known = self.directory.forget_job(body["metadata"]["uid"])
            if known and self.listener:
                self.listener.job_gone(known)
        elif (known := self.directory.observe_job(body)) and self.listener:
            self.listener.job_changed(known)

    def _observe_pool(self, body: Json, *, gone: bool) -> None:
        name = body["metadata"]["name"]
        before = self.directory.pools.get(name)
        if gone:
            if before and before.uid == body["metadata"]["uid"]:
                self.forget_pool(name)
            return
        if (known := self.directory.observe_pool(body)) is None:
            return
        if before and before.uid != known.uid and self.listener:
            self.listener.pool_gone(before)
        if self.listener is None:
            known.in_force = known.pool.spec  # a new leader reads in the status which spec is in force
        self.claim(known)
        if self.listener:
            self.listener.pool_changed(known)

    def claim(self, known: KnownPool) -> None:
        """Let the pool claim the nodes that its spec in force selects."""
        meta = known.pool.metadata
        selects = known.in_force.node_selector.matches
        self.inventory.observe_pool(meta.name, created=meta.creation_timestamp, selects=selects)

    def asked(self, known: KnownPool) -> tuple[NodeObserved, ...] | None:
        """Return the nodes that its spec would give the pool. None: the same nodes as now."""
        meta, selector = known.pool.metadata, known.pool.spec.node_selector
        if selector == known.in_force.node_selector:
            return None
        return self.inventory.under(meta.name, created=meta.creation_timestamp, selects=selector.matches)

    def forget_pool(self, name: str) -> None:
        """Remove a pool that is gone."""
        known = self.directory.forget_pool(name)
        self.inventory.forget_pool(name)
        if known and self.listener:
            self.listener.pool_gone(known)

    def _observe_profile(self, body: Json, *, gone: bool) -> None:
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        if gone:
            self.directory.forget_profile(namespace, name)
        elif self.directory.observe_profile(body) and self.listener:
            self.listener.profile_changed(namespace, name)

    def _observe_reservation(self, body: Json, *, gone: bool) -> None:
        if gone:
            known = self.directory.forget_reservation(body["metadata"]["uid"])
            if known and self.listener:
                self.listener.reservation_gone(known)
        elif (known := self.directory.observe_reservation(body)) and self.listener:
            self.listener.reservation_changed(known)

    # other objects, from informers

    def nodes_of(self, pool: str, selects: Callable[[Mapping[str, str]], bool]) -> frozenset[str]:
        """Return the nodes of a pool with matching labels."""
        nodes = self.inventory.nodes()
        return frozenset(n.name for n in nodes if selects(n.labels) and self.inventory.owner(n.name) == pool)

    def _tell(self, pool: str, event: NodeObserved | NodeGone) -> None:
        if self.listener:
            self.listener.tell(pool, event)

    def _on_node_change(self, change: Change, key: str, node: Node) -> None:
        if change == "DELETED":
            self.inventory.forget_node(key)
            self.on_node_gone(key)
            if self.listener:
                self.listener.node_gone(key)
            return
        self.inventory.observe_node(node)
        if self.listener:
            self.listener.node_changed(node)

    def _on_namespace_change(self, change: Change, key: str, labels: Mapping[str, str]) -> None:
        if change == "DELETED":
            self._namespaces.pop(key, None)
        else:
            self._namespaces[key] = labels
            if self.listener:
                self.listener.namespace_changed(key)

    def _on_pod_change(self, change: Change, key: str, pod: _Pod) -> None:
        self._unclaim(key)
        if pod.keeps:
            self._count(key, None)
            self._keep(key, pod.keeps, gone=change == "DELETED")
            return
        if before := self.placeholders.get(key):  # its label was removed
            self._keep(key, before, gone=True)
        ours = pod.claim if pod.claim and self._is_ours(key, pod.claim) else None
        self._count(key, None if ours or change == "DELETED" else pod.room)
        if ours is None:
            if key in self.pods:  # its job disowned it
                self._forget(key)
            if change != "DELETED" and pod.claim and pod.claim.job not in self.directory.jobs:
                self._claims.setdefault(pod.claim.job, {})[key] = pod
                self._claimed[key] = pod.claim.job
            return
        self._remember(key, ours)
        # also of a pod that is gone: its result may come with its deletion
        self._say(key, ours.job, ours)
        if change == "DELETED":
            self._forget(key)

    def _keep(self, key: str, seen: Placeholder, *, gone: bool) -> None:
        """Record a placeholder. Its capacity belongs to the pool."""
        if gone:
            self.placeholders.pop(key, None)
        else:
            self.placeholders[key] = seen
        if self.listener:
            self.listener.placeholder(key, seen, gone=gone)

    def _is_ours(self, key: str, claim: PodObserved) -> bool:
        """Return whether a pod belongs to a known job, belonged to one before its deletion, or was expected of one."""
        known = self.directory.jobs.get(claim.job)
        owner = known.owner if known else self._late.get(key)
        if owner is not None and owner.uid == claim.job:
            return is_chunk_of(owner, claim)
        before = self.pods.get(key)
        return before is not None and (before.uid, before.job) == (claim.uid, claim.job)

    def _settle_claims(self, job: str) -> None:
        """Check the pods again that claimed this job, now that the job is known."""
        for key, pod in list(self._claims.get(job, {}).items()):
            self._on_pod_change("MODIFIED", key, pod)

    def _unclaim(self, key: str) -> None:
        if (job := self._claimed.pop(key, None)) is not None:
            claims = self._claims[job]
            del claims[key]
            if not claims:
                del self._claims[job]

    def _count(self, key: str, room: ForeignPod | None) -> None:
        """Count a pod's capacity as taken by other pods, or stop counting it."""
        before = self._rooms.pop(key, None)
        if room is not None:
            self._rooms[key] = room
            self.inventory.observe_pod(room)
        elif before is not None:
            self.inventory.forget_pod(before)

    def _remember(self, key: str, pod: PodObserved) -> None:
        self._take_out(key)
        self.pods[key] = pod
        self._of_job.setdefault(pod.job, {})[key] = None
        self._late.pop(key, None)
        self._jobs[pod.uid] = pod.job
        if pod.node:
            self._on_node.setdefault(pod.node, {})[pod.uid] = None

    def _take_out(self, key: str) -> None:
        if (pod := self.pods.pop(key, None)) is not None:
            keys = self._of_job[pod.job]
            del keys[key]
            if not keys:
                del self._of_job[pod.job]

    def _forget(self, key: str) -> None:
        pod = self.pods[key]
        self._take_out(key)
        self._say(key, pod.job, PodGone(pod.namespace, pod.name, pod.uid))
        self._jobs.pop(pod.uid, None)
        there = self._on_node.get(pod.node, {})
        there.pop(pod.uid, None)
        if not there:
            self._on_node.pop(pod.node, None)

    def _seen(self, body: Json) -> _Pod | None:
        if keeps := placeholder(body, self.manner.namespace):
            return _Pod(None, None, keeps)
        pod = project_pod(body)
        if isinstance(pod, PodObserved):
            return _Pod(pod, foreign_pod(body))
        return _Pod(None, pod) if pod else None

    def _say(self, key: str, job: str, event: PodObserved | PodGone) -> None:
        if self.listener:
            self.listener.pod(key, job, event)


def _labels(body: Json) -> Mapping[str, str]:
    return body["metadata"].get("labels") or {}


Post = Callable[[str, str | None, Json], None]
"""Receives plural, change and body of an event of one of Punctual's kinds."""

KINDS = tuple(kind.NAMES.plural for kind in api.KINDS)
