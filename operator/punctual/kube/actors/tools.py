"""What all actors and kinds of a term share."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from punctual.kube.actors.job_results import JobResults
from punctual.kube.actors.placeholders import Placeholders
from punctual.kube.actors.promise_metrics import PromiseMetrics
from punctual.kube.actors.taints import Taints
from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.events import EventRecorder
from punctual.kube.known.directory import Directory
from punctual.kube.metrics import Metrics
from punctual.kube.writes.keys import Key
from punctual.kube.writes.writer import Writer
from punctual.profiles.learning import Learning
from punctual.runtime.clock import ServerClock


class AllKinds(Protocol):
    """The loop over all kinds, as one kind or a Pool's actor reaches the others."""

    def signal(self, kind: str, key: str) -> None:
        """Tell of a change that may concern objects of any kind (`punctual.kube.known.store.Signal`)."""

    def carry_out(self, pool: str, action: Any) -> None:
        """Carry out an action of a Pool (name)."""

    def recorded(self, pool: str) -> Sequence[Any]:
        """Return what is on record for a Pool (name) that starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The tools of a term. None of them decides anything."""

    epoch: int
    kinds: AllKinds
    clock: ServerClock
    image: str
    """The operator's image, for the input step."""
    caches: Caches
    writer: Writer
    recorder: EventRecorder
    set_points: SetPointStore
    metrics: Metrics
    promise_metrics: PromiseMetrics
    taints: Taints
    placeholders: Placeholders
    results: JobResults
    learning: Learning
    found: dict[Key, bytes] = field(default_factory=dict)
    """Statuses (JSON) that a new leader found, by the writer's key. A stamp with the same content is not written."""

    @property
    def directory(self) -> Directory:
        """What is known of Punctual's kinds."""
        return self.caches.directory

    def now(self) -> float:
        """Return the API server's clock."""
        return self.clock.now()
