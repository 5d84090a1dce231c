"""What changes in the cluster during a term, and what becomes of its writes: each goes to the parts that it concerns.

The caches call `ChangeListener` (`punctual.kube.cluster.caches.Listener`), also during the takeover. Then the parts
decide nothing. The writer calls `finished` for each finished operation.
"""

from typing import Protocol

import structlog

from punctual.kube.actors.actors import Life
from punctual.kube.api.resources import NODES, PODS, Resource
from punctual.kube.cluster.nodes import Node
from punctual.kube.cluster.placeholder_pod import Placeholder
from punctual.kube.known.store import Known, Signal
from punctual.kube.leader.parts import Parts
from punctual.kube.writes.operations import CreatePod, Outcome, Patch, PutStatus
from punctual.scheduling.model.events import Event, NodeGone, PodGone, PodObserved

log = structlog.get_logger(__name__)


class Epochs(Life, Protocol):
    """A term that ends when a newer leader has begun."""

    def see_epoch(self, epoch: int) -> None:
        """Take in an epoch in a status that is higher than any before."""


class ChangeListener:
    """The listener of the caches and of the writer."""

    def __init__(self, parts: Parts, term: Epochs) -> None:
        self._parts = parts
        self._tools = parts.tools
        self._term = term

    def changed(self, resource: Resource, known: Known) -> None:
        """Take in an object of one of Punctual's kinds that is new, edited or being deleted."""
        self._parts.kinds.changed(resource, known)

    def gone(self, resource: Resource, known: Known) -> None:
        """Take in such an object that is gone."""
        self._parts.kinds.gone(resource, known)

    def signal(self, signal: Signal) -> None:
        """Take in another change that may concern such objects."""
        self._parts.kinds.signal(*signal)

    def see_epoch(self, epoch: int) -> None:
        """Take in an epoch in a status that is higher than any before."""
        self._term.see_epoch(epoch)

    def node_changed(self, node: Node) -> None:
        """Take in a node as it is. The takeover reads all of them at its end."""
        if self._term.leads:
            self._tools.taints.observe(node)

    def node_gone(self, name: str) -> None:
        """Take in that a node is gone."""
        self._tools.taints.forget_node(name)

    def pod(self, key: str, job: str, event: PodObserved | PodGone) -> None:
        """Take in a change of a chunk pod ("namespace/name") of a job (uid)."""
        self._tools.writer.observed(key)
        self._parts.pods.changed(job, event)

    def counting(self, pod: str) -> str | None:
        """Return the pool that counts what a pod (uid) takes of its node."""
        return self._parts.pods.counting(pod)

    def placeholder(self, key: str, seen: Placeholder, *, gone: bool) -> None:
        """Take in a change of a placeholder. The takeover reads all of them at its end."""
        self._tools.writer.observed(key)
        if gone:
            self._tools.placeholders.forget(seen)
        elif self._term.leads:
            self._tools.placeholders.observe(seen)

    def tell(self, pool: str, event: Event) -> None:
        """Take in that a pool's nodes changed."""
        self._parts.actors.tell(pool, event)
        self._parts.guests.nodes_changed(pool)
        self._parts.kinds.signal("nodes", pool)
        if isinstance(event, NodeGone):
            self._tools.taints.hold(event.name, pool, held=False)

    def finished(self, outcome: Outcome) -> None:
        """Take in the outcome of an operation."""
        match outcome.key.resource, outcome.operation:
            case _, PutStatus() as write:
                self._parts.actors.settled(outcome.key)
                self._parts.guests.settled(outcome.key)
                self._parts.kinds.written(outcome, write, self._tools.caches)
            case resource, CreatePod() if resource is PODS:
                self._tools.placeholders.settled(outcome)
            case resource, Patch(path) if resource is NODES:
                log.info("taint_written", path=path, result=outcome.result)
                self._tools.taints.settled(outcome.key.name)
            case _:
                self._parts.kinds.wrote(outcome)
