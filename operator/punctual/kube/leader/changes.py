"""What changes in the cluster during a term: each change goes to the parts that it concerns.

The caches call it (`punctual.kube.cluster.caches.Listener`), also during the takeover. Then the parts decide nothing.
"""

from collections.abc import Callable

from punctual.kube.cluster.directory import KnownJob, KnownPool, KnownRate, KnownReservation
from punctual.kube.cluster.nodes import Node
from punctual.kube.cluster.placeholder_pod import Placeholder
from punctual.kube.holding.placeholders import Placeholders
from punctual.kube.holding.taints import Taints
from punctual.kube.leader.actors import PoolActors
from punctual.kube.leader.guests import Guests
from punctual.kube.leader.jobs import Jobs
from punctual.kube.leader.pod_events import PodEvents
from punctual.kube.leader.pools import Pools
from punctual.kube.leader.rates import Rates
from punctual.kube.leader.reservations import Reservations
from punctual.kube.writes.writer import Writer
from punctual.scheduling.model.events import Event, NodeGone, PodGone, PodObserved


class Changes:
    """The listener of the caches. ``leads()`` returns whether anything is decided yet, or still."""

    def __init__(
        self,
        *,
        jobs: Jobs,
        pools: Pools,
        reservations: Reservations,
        rates: Rates,
        pods: PodEvents,
        actors: PoolActors,
        guests: Guests,
        taints: Taints,
        placeholders: Placeholders,
        writer: Writer,
        leads: Callable[[], bool],
    ) -> None:
        self._jobs = jobs
        self._pools = pools
        self._reservations = reservations
        self._rates = rates
        self._pods = pods
        self._actors = actors
        self._guests = guests
        self._taints = taints
        self._placeholders = placeholders
        self._writer = writer
        self._leads = leads

    def job_changed(self, known: KnownJob) -> None:
        """Take in that a job is new, edited or being deleted."""
        self._jobs.changed(known)

    def job_gone(self, known: KnownJob) -> None:
        """Take in that a job is gone."""
        self._jobs.gone(known)

    def pool_changed(self, known: KnownPool) -> None:
        """Take in that a pool is new, edited or being deleted."""
        self._pools.changed(known)
        self._rates.pool_changed(known.pool.metadata.name)

    def pool_gone(self, known: KnownPool) -> None:
        """Take in that a pool is gone."""
        self._pools.gone(known)
        self._rates.pool_changed(known.pool.metadata.name)

    def reservation_changed(self, known: KnownReservation) -> None:
        """Take in that a reservation is new or being deleted."""
        self._reservations.changed(known)

    def reservation_gone(self, known: KnownReservation) -> None:
        """Take in that a reservation is gone."""
        self._reservations.gone(known)

    def rate_changed(self, known: KnownRate) -> None:
        """Take in that a TargetRate is new, edited or being deleted."""
        self._rates.changed(known)

    def rate_gone(self, known: KnownRate) -> None:
        """Take in that a TargetRate is gone."""
        self._rates.gone(known)

    def application_changed(self, namespace: str) -> None:
        """Take in that the user's own pods in a namespace changed."""
        self._rates.pods_changed(namespace)

    def profile_changed(self, namespace: str, name: str) -> None:
        """Take in that a profile is new or edited."""
        self._jobs.profile_changed(namespace, name)

    def namespace_changed(self, namespace: str) -> None:
        """Take in that a namespace has other labels."""
        self._jobs.namespace_changed(namespace)
        self._reservations.namespace_changed(namespace)
        self._rates.pods_changed(namespace)

    def claim_changed(self, namespace: str, name: str) -> None:
        """Take in that a PersistentVolumeClaim, its volume or its storage class has changed."""
        self._jobs.claim_changed(namespace, name)

    def node_changed(self, node: Node) -> None:
        """Take in a node as it is. The takeover reads all of them at its end."""
        if self._leads():
            self._taints.observe(node)

    def node_gone(self, name: str) -> None:
        """Take in that a node is gone."""
        self._taints.forget_node(name)

    def pod(self, key: str, job: str, event: PodObserved | PodGone) -> None:
        """Take in a change of a chunk pod ("namespace/name") of a job (uid)."""
        self._writer.observed(key)
        self._pods.changed(job, event)

    def counting(self, pod: str) -> str | None:
        """Return the pool that counts what a pod (uid) takes of its node."""
        return self._pods.counting(pod)

    def placeholder(self, key: str, seen: Placeholder, *, gone: bool) -> None:
        """Take in a change of a placeholder. The takeover reads all of them at its end."""
        self._writer.observed(key)
        if gone:
            self._placeholders.forget(seen)
        elif self._leads():
            self._placeholders.observe(seen)

    def tell(self, pool: str, event: Event) -> None:
        """Take in that a pool's nodes changed."""
        self._actors.tell(pool, event)
        self._guests.nodes_changed(pool)
        self._rates.pool_changed(pool)
        if isinstance(event, NodeGone):
            self._taints.hold(event.name, pool, held=False)
