"""The caches of every replica, leader or standby: pods, nodes and namespaces by informers, Punctual's kinds by kopf.

A standby with warm caches can lead as soon as it acquires the lease. Only the leader's term is registered as a
listener, and what it has read or decided ends with it: each term of a replica begins with what watches said, as that of
a new process does. The caches live on the main loop; kopf's thread posts into it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

import structlog

from punctual.kube.api.resources import BATCH_JOBS, CLAIMS, NODES, PODS, STORAGE_CLASSES, VOLUMES, Resource
from punctual.kube.cluster.application_pods import ApplicationPods
from punctual.kube.cluster.batch_jobs import BatchJob, BatchJobs, project_job
from punctual.kube.cluster.chunk_pods import ChunkPods, SeenPod, see_pod
from punctual.kube.cluster.claims import Claims, project_claim, project_class, project_volume
from punctual.kube.cluster.client import ApiClient, Json
from punctual.kube.cluster.informer import Change, Informer
from punctual.kube.cluster.nodes import Inventory, Node, project_node
from punctual.kube.cluster.placeholder_pod import Placeholder, PlaceholderSettings
from punctual.kube.cluster.pods import ForeignPod
from punctual.kube.known.directory import Directory
from punctual.kube.known.pools import KnownPool
from punctual.kube.known.store import Known, NamedStore, Signal, StoreListener
from punctual.scheduling.model.events import Event, NodeGone, NodeObserved, PodGone, PodObserved

NAMESPACES = Resource("v1", "namespaces")

log = structlog.get_logger(__name__)


class Listener(Protocol):
    """The leader's term, which is called on changes."""

    def changed(self, resource: Resource, known: Known) -> None:
        """Handle an object of one of Punctual's kinds that is new, edited or being deleted."""

    def gone(self, resource: Resource, known: Known) -> None:
        """Handle such an object that is gone."""

    def signal(self, signal: Signal) -> None:
        """Handle another change that may concern such objects."""

    def see_epoch(self, epoch: int) -> None:
        """Handle an epoch in a status that is higher than any before."""

    def node_changed(self, node: Node) -> None:
        """Handle a new or changed node."""

    def node_gone(self, name: str) -> None:
        """Handle a node that is gone."""

    def pod(self, key: str, job: str, event: PodObserved | PodGone) -> None:
        """Handle a change of a chunk pod ("namespace/name")."""

    def counting(self, pod: str) -> str | None:
        """Return the pool that counts what a pod (uid) takes of its node. None: the pod is foreign to all pools."""

    def placeholder(self, key: str, seen: Placeholder, *, gone: bool) -> None:
        """Handle a change of a placeholder ("namespace/name")."""

    def tell(self, pool: str, event: Event) -> None:
        """Send an event to a pool."""


class Caches(StoreListener):
    """The directory, the node inventory, chunk pods, and the labels of namespaces."""

    def __init__(self, client: ApiClient, placeholder_settings: PlaceholderSettings | None = None) -> None:
        self.placeholder_settings = placeholder_settings or PlaceholderSettings(namespace="default")
        """The settings of placeholders."""
        self.directory = Directory(self)
        self.inventory = Inventory(
            self._tell,
            yielding=self.placeholder_settings.priority,
            counted_by=lambda pod: self.listener.counting(pod) if self.listener else None,
        )
        self.placeholders: dict[str, Placeholder] = {}
        """By "namespace/name"."""
        self.listener: Listener | None = None
        self.on_node_gone: Callable[[str], None] = lambda _: None
        """Called for each node that is gone, on leaders and standbys."""
        self.pods = ChunkPods()
        self.applications = ApplicationPods()
        self.claims = Claims(self._on_claim_change)
        self.batch = BatchJobs()
        self._bound: dict[str, ForeignPod] = {}  # what pods take of their nodes, by key
        self.informers: tuple[Informer[Any], ...] = (
            Informer(client, NODES.path(), project=project_node, on_change=self._on_node_change),
            Informer(
                client,
                PODS.path(),
                project=lambda body: see_pod(body, self.placeholder_settings.namespace),
                on_change=self._on_pod_change,
            ),
            Informer(client, NAMESPACES.path(), project=_labels, on_change=self._on_namespace_change),
            Informer(client, BATCH_JOBS.path(), project=project_job, on_change=self._on_batch_change),
            *(
                Informer(client, resource.path(), project=project, on_change=_told(observe))
                for resource, project, observe in (
                    (STORAGE_CLASSES, project_class, self.claims.observe_class),
                    (VOLUMES, project_volume, self.claims.observe_volume),
                    (CLAIMS, project_claim, self.claims.observe_claim),
                )
            ),
        )
        self._namespaces: dict[str, Mapping[str, str]] = {}

    def begin_term(self, listener: Listener) -> None:
        """Begin a term: it learns of changes, and of nothing that an earlier term of this process has known."""
        self._forget_term()
        self.listener = listener

    def end_term(self, listener: Listener) -> None:
        """End a term, unless another has begun."""
        if self.listener is listener:
            self.listener = None
            self._forget_term()

    def _forget_term(self) -> None:
        edited = [known for known in self.directory.pools.values() if known.term.in_force != known.spec]
        self.directory.forget_term()
        for known in edited:
            self.claim(known)
        self.inventory.forget_term()
        self.pods.forget_term()

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

    # Punctual's kinds, from kopf

    def observe(self, plural: str, change: str | None, body: Json) -> None:
        """Process an event of kopf. ``change`` is None for an object of the first list."""
        store = self.directory.store_of(plural)
        if change == "DELETED":
            self.forget(store.resource, body["metadata"]["uid"])
            return
        meta, before = body["metadata"], None
        if isinstance(store, NamedStore) and store.replaces:
            before = store.named(meta["name"], meta.get("namespace", ""))
        if (known := store.observe(body)) is None:
            return
        if before is not None and before.uid != known.uid and self.listener:
            self.listener.gone(store.resource, before)
        if isinstance(known, KnownPool):
            if self.listener is None:
                known.term.in_force = known.spec  # a new leader reads in the status which spec is in force
            self.claim(known)
        if self.listener:
            self.listener.changed(store.resource, known)

    def job_of_pod(self, pod: str) -> str | None:
        """Return the job ("namespace/name") of a chunk pod (uid); None if it is not known."""
        known = self.directory.jobs.get(self.pods.job_of(pod) or "")
        return None if known is None else f"{known.owner.namespace}/{known.owner.name}"

    def forget(self, resource: Resource, uid: str) -> None:
        """Remove an object that is gone."""
        store = self.directory.store_of(resource.plural)
        if (known := store.forget(uid)) is None:
            return
        if isinstance(known, KnownPool):
            self.inventory.forget_pool(known.name)
        if self.listener:
            self.listener.gone(resource, known)

    def claim(self, known: KnownPool) -> None:
        """Let the pool claim the nodes that its spec in force selects."""
        selects = known.term.in_force.node_selector.matches
        self.inventory.observe_pool(known.name, created=known.created, selects=selects)

    def asked(self, known: KnownPool) -> tuple[NodeObserved, ...] | None:
        """Return the nodes that its spec would give the pool. None: the same nodes as now."""
        selector = known.spec.node_selector
        if selector == known.term.in_force.node_selector:
            return None
        return self.inventory.under(known.name, created=known.created, selects=selector.matches)

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
            self._signal("namespace", key)

    def _on_claim_change(self, namespace: str, name: str) -> None:
        self._signal("claim", f"{namespace}/{name}")

    def _on_batch_change(self, change: Change, key: str, job: BatchJob) -> None:
        self.batch.observe(job, gone=change == "DELETED")
        self._signal("batch", key)

    def _on_pod_change(self, change: Change, key: str, pod: SeenPod) -> None:
        self.pods.unclaim(key)
        self.batch.observe_started(key, pod.batch, None if change == "DELETED" else pod.claim)
        if job := self.batch.observe_gated(key, None if change == "DELETED" else pod.gated):
            self._signal("gated", job)
        namespace = self.applications.observe(key, None if change == "DELETED" else pod.application)
        if namespace:
            self._signal("pods", namespace)
        if pod.placeholder:
            self._count(key, None)
            self._keep(key, pod.placeholder, gone=change == "DELETED")
            return
        if before := self.placeholders.get(key):  # its label was removed
            self._keep(key, before, gone=True)
        ours = pod.claim if pod.claim and self._is_ours(key, pod.claim, pod.batch) else None
        if ours is None:
            if key in self.pods.by_key:  # its job disowned it
                self._forget(key)
            self._count(key, None if change == "DELETED" else pod.foreign)
            if change != "DELETED" and pod.claim and pod.claim.job not in self.directory.jobs:
                self.pods.claim(key, pod.claim.job, pod)
            return
        self.pods.remember(key, ours, pod.batch)
        # also of a pod that is gone: its result may come with its deletion
        self._say(key, ours.job, ours)
        if change == "DELETED":
            self._forget(key)
        # at the end, when the pool is told that counts it: so no capacity seems to be lost in between
        self._count(key, None if change == "DELETED" else pod.foreign)

    def _keep(self, key: str, seen: Placeholder, *, gone: bool) -> None:
        """Record a placeholder. Its capacity belongs to the pool."""
        if gone:
            self.placeholders.pop(key, None)
        else:
            self.placeholders[key] = seen
        if self.listener:
            self.listener.placeholder(key, seen, gone=gone)

    def _is_ours(self, key: str, claim: PodObserved, batch: str) -> bool:
        known = self.directory.jobs.get(claim.job)
        if known is not None and known.guest != (claim.kind == "Guest"):
            return False
        return self.pods.is_ours(key, claim, known.owner if known else None, batch)

    # what stores tell

    def see_epoch(self, epoch: int) -> None:
        """Tell a term of an epoch that is higher than any before."""
        if self.listener:
            self.listener.see_epoch(epoch)

    def unreadable(self, kind: str, name: str, why: str) -> None:
        """Log that an object is refused by the models."""
        log.warning("object_unreadable", kind=kind, name=name, error=why)

    def job_is_new(self, uid: str) -> None:
        """Check the pods again that claimed this job, now that the job is known."""
        for key, pod in self.pods.claims_of(uid):
            self._on_pod_change("MODIFIED", key, pod)

    def _count(self, key: str, pod: ForeignPod | None) -> None:
        """Count what a pod takes of its node, or stop counting it."""
        before = self._bound.pop(key, None)
        if before is not None and (pod is None or (pod.uid, pod.node) != (before.uid, before.node)):
            self.inventory.forget_pod(before)
        if pod is not None:
            self._bound[key] = pod
            self.inventory.observe_pod(pod)

    def _forget(self, key: str) -> None:
        pod = self.pods.by_key[key]
        self.pods.forget(key)
        self._say(key, pod.job, PodGone(pod.namespace, pod.name, pod.uid))

    def _signal(self, kind: str, key: str) -> None:
        if self.listener:
            self.listener.signal(Signal(kind, key))

    def job_is_unsettled(self, uid: str) -> None:
        """Take up a job that was put aside, and has a status that was written since and is not settled."""
        if self.directory.jobs[uid].term.aside is not None:
            self._signal("job", uid)

    def _say(self, key: str, job: str, event: PodObserved | PodGone) -> None:
        if self.listener:
            self.listener.pod(key, job, event)


def _told(observe: Callable[..., None]) -> Callable[[Change, str, Any], None]:
    """Return an informer's callback for a cache that is told the projection, and whether the object is gone."""
    return lambda change, _key, projection: observe(projection, gone=change == "DELETED")


def _labels(body: Json) -> Mapping[str, str]:
    return body["metadata"].get("labels") or {}


class EventReceiver(Protocol):
    """What receives events of Punctual's kinds."""

    def observe(self, plural: str, change: str | None, body: Json) -> None:
        """Receive an event. ``change`` is None for an object of a list."""
