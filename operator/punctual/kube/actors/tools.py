"""What all actors and kinds of a term share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from punctual.kube.actors.job_results import JobResults
from punctual.kube.actors.promise_metrics import PromiseMetrics
from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.events import EventRecorder
from punctual.kube.format.clock import ServerClock
from punctual.kube.holding.placeholders import Placeholders
from punctual.kube.holding.taints import Taints
from punctual.kube.known.directory import Directory
from punctual.kube.learning.profiles import ProfileLearning
from punctual.kube.metrics import Metrics
from punctual.kube.writes.keys import Key
from punctual.kube.writes.writer import Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The tools of a term. None of them decides anything."""

    epoch: int
    clock: ServerClock
    monotonic: Callable[[], float]
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
    learning: ProfileLearning
    found: dict[Key, bytes] = field(default_factory=dict)
    """Statuses (JSON) that a new leader found, by the writer's key. A stamp with the same content is not written."""

    @property
    def directory(self) -> Directory:
        """What is known of Punctual's kinds."""
        return self.caches.directory

    def now(self) -> float:
        """Return the API server's clock."""
        return self.clock.now()
