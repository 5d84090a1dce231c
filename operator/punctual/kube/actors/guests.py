"""The guests of a term: one control for each pool, told of its guest jobs, their pods, its nodes and their reports.

Chunks and statuses of guest jobs are written as those of any job.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from punctual import reasons, wire
from punctual.guests.control import GuestControl
from punctual.guests.explain import explain
from punctual.guests.model import Action, Decided, Event, GuestApplied, LendTo, NodesSeen, key_of, merged
from punctual.kube.actors.actors import Actors, Life
from punctual.kube.actors.executor import PoolExecutor
from punctual.kube.actors.guest_records import note, to_guest, to_nodes, to_report
from punctual.kube.actors.runners import Runners
from punctual.kube.actors.tools import Tools
from punctual.kube.cluster.events import Regarding
from punctual.kube.known.jobs import KnownJob
from punctual.linger.history import History
from punctual.runtime.mailbox import Mailbox
from punctual.scheduling.model.actions import Action as PoolAction
from punctual.scheduling.model.job import Job
from punctual.view.guests import lately


class GuestExecutor(PoolExecutor):
    """Carries out the actions for the guests of one pool. ``decided``: called with each decision about a chunk."""

    decided: Callable[[Decided], None] = staticmethod(lambda _: None)

    def perform(self, action: PoolAction | Action) -> None:
        """Start an action. Returns at once."""
        match action:
            case LendTo():
                self._tools.set_points.put(action)
            case Decided():
                self.decided(action)
            case _:
                super().perform(action)


class Guests(Actors[GuestControl, Event, GuestExecutor]):
    """The guests of each pool."""

    def __init__(self, tools: Tools, runners: Runners, life: Life) -> None:
        super().__init__(tools, life)
        self._caches = tools.caches
        self._runners = runners
        self._stale: set[str] = set()  # pools with nodes that have changed
        self._histories: dict[str, History] = {}  # of the nodes of all pools

    def start(self, pool: str, restored: Sequence[Event]) -> None:
        """Start the control of a pool's guests. ``restored``: its guest jobs with a decision, and their pods."""
        mailbox = Mailbox(key_of, merged)
        executor = GuestExecutor(pool, self._tools, self._runners, mailbox)
        executor.decided = self._decided
        self.run(pool, GuestControl(self._tools.epoch), mailbox, executor, [self._nodes(pool), *restored])

    def applied(self, known: KnownJob, job: Job) -> GuestApplied:
        """Return a guest job as its control is told of it."""
        pool = self._caches.directory.pools.named(known.owner.pool)
        assert pool is not None
        if pool.deleting and job.refusal is None:  # its deletion waits for all chunks
            text = f"Pool {known.owner.pool} is being deleted: its guests stop"
            job = replace(job, refusal=(reasons.POOL_DELETED, text))
        template = {} if job.refusal else known.template()["template"]
        return GuestApplied(to_guest(job, template, pool.spec), known.term.record)

    def nodes_changed(self, pool: str) -> None:
        """Take in that the nodes of a pool have changed."""
        self._stale.add(pool)

    def tick(self) -> None:
        """Tell the controls of nodes that have changed since the last tick."""
        stale, self._stale = self._stale, set()
        if stale:
            owner = self._caches.inventory.owner
            self._histories = {node: one for node, one in self._histories.items() if owner(node)}
        for pool in stale:
            if self.runs(pool):
                self.tell(pool, self._nodes(pool))

    def reported(self, node: str, host: wire.NodeReport, pods: Iterable[wire.PodReport]) -> None:
        """Take in a node's report. ``pods``: the guests among its pods."""
        if pool := self._caches.inventory.owner(node):
            self.tell(pool, to_report(node, host, pods))
            if host.hosts is not None:
                if node not in self._histories:
                    self._histories[node] = History()
                note(self._histories[node], self._tools.now(), host.hosts)

    def _decided(self, decided: Decided) -> None:
        """Count a decision about a chunk, and tell it by an event on its pod."""
        self._tools.metrics.guest_decided(decided)
        pod = next((pod for pod in self._caches.pods.of_job(decided.job) if pod.uid == decided.pod), None)
        if pod is not None:
            told = explain(decided)
            history = self._histories.get(decided.node) if decided.cause == "Policy" else None
            before = "" if history is None else lately(decided.node, history, self._tools.now())
            about = Regarding("v1", "Pod", pod.namespace, pod.name, pod.uid)
            self._tools.recorder.emit(about, "Normal", told.reason, f"{told.message} {before}".rstrip())

    def _nodes(self, pool: str) -> NodesSeen:
        inventory = self._caches.inventory
        return NodesSeen(to_nodes(inventory.events_of(pool), {node.name: node for node in inventory.nodes()}))
