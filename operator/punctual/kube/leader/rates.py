"""The target rates of a term: one actor controls all of them.

It is told what is asked and which pods are selected, when these change. Nothing is decided about a TargetRate before
its status was read after the stamp. The actor's clock is this replica's monotonic one, so that a clock that is set does
not change what was measured.

Prometheus is asked every few seconds for the iterations of TargetRates with a query.
"""

from collections.abc import Callable
from typing import Final

from punctual import wire
from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.directory import KnownRate
from punctual.kube.leader.actors import Spawn
from punctual.kube.rates.executor import RateExecutor
from punctual.kube.rates.prometheus import Prometheus
from punctual.kube.rates.records import applied, members
from punctual.kube.takeover.late import LateReader
from punctual.kube.takeover.statuses import Statuses
from punctual.rates.control import RateControl
from punctual.rates.model import (
    Action,
    Event,
    MembersSeen,
    PodsCounted,
    PodsReported,
    RateApplied,
    RateDeleted,
    Seen,
    key_of,
)
from punctual.runtime.actor import Actor
from punctual.runtime.mailbox import Mailbox

ASK: Final = 3.0
"""Seconds between two queries for one TargetRate: Prometheus scrapes less often, mostly."""


class Rates:
    """All target rates of the directory. ``leads()`` returns whether anything is decided yet, or still."""

    def __init__(
        self,
        caches: Caches,
        statuses: Statuses,
        late: LateReader,
        executor: RateExecutor,
        set_points: SetPointStore,
        *,
        prometheus: Prometheus,
        monotonic: Callable[[], float],
        doubted: Callable[[], bool],
        leads: Callable[[], bool],
        spawn: Spawn,
    ) -> None:
        self._caches = caches
        self._directory = caches.directory
        self._statuses = statuses
        self._late = late
        self._executor = executor
        self._set_points = set_points
        self._prometheus = prometheus
        self._monotonic = monotonic
        self._leads = leads
        self._spawn = spawn
        self._mailbox: Mailbox[Event] = Mailbox(key_of, monotonic=monotonic)
        self._actor: Actor[Event, Action] = Actor(
            RateControl(), self._mailbox, executor, now=monotonic, doubted=doubted, monotonic=monotonic
        )
        self._told: dict[str, tuple[RateApplied, MembersSeen]] = {}
        self._asked: dict[str, float] = {}  # when Prometheus was asked for a TargetRate last
        self._asking: set[str] = set()  # TargetRates with a query that is not answered yet
        self._stale: set[str] = set()  # namespaces with pods, a pool or labels that changed

    def begin(self) -> None:
        """Control all target rates: the takeover is done."""
        for known in self._directory.rates.values():
            self._consider(known)
        self._spawn(self._actor.run(self._mailbox.take()))

    def changed(self, known: KnownRate) -> None:
        """Take in that a TargetRate is new, edited or being deleted."""
        self._statuses.left_alone.discard(known.uid)
        if self._leads():
            self._consider(known)

    def gone(self, known: KnownRate) -> None:
        """Take in that a TargetRate is gone."""
        self._statuses.gone.add(known.uid)
        self._statuses.read.discard(known.uid)
        self._drop(known)

    def pods_changed(self, namespace: str) -> None:
        """Take in that pods or the labels of a namespace changed."""
        self._stale.add(namespace)

    def pool_changed(self, pool: str) -> None:
        """Take in that a pool or its nodes changed."""
        rates = self._directory.rates.values()
        self._stale |= {known.metadata.namespace for known in rates if known.spec and known.spec.pool == pool}

    def reported(self, node: str, pods: tuple[wire.PodReport, ...]) -> None:
        """Take in what a node's report says of pods that are no chunk pods."""
        if self._told:
            seen = tuple(Seen(pod.uid, pod.done, pod.written, pod.cap, pod.period) for pod in pods if not pod.over)
            self._mailbox.put(PodsReported(node, self._monotonic(), seen))

    def tick(self) -> None:
        """Tell the control what has changed since the last tick, and the agents whether all pods are known."""
        stale, self._stale = self._stale, set()
        for known in list(self._directory.rates.values()):
            if known.metadata.namespace in stale:
                self._consider(known)
        if self._leads():
            self._ask_prometheus()
        left_alone = self._statuses.left_alone
        self._set_points.applications_complete = self._executor.begun and left_alone.isdisjoint(self._directory.rates)

    @property
    def silent(self) -> float:
        """Seconds since the last step of the control."""
        return self._actor.silent

    def _consider(self, known: KnownRate) -> None:
        if known.deleting:
            self._drop(known)
            return
        if known.uid in self._statuses.left_alone:
            return
        if known.uid not in self._statuses.read:
            if not self._late.reads(known.uid):
                self._spawn(self._read_late(known))
            return
        now = applied(known, self._caches), members(known, self._caches)
        before = self._told.get(known.uid)
        self._told[known.uid] = now
        for event in now:
            if before is None or event not in before:
                self._mailbox.put(event)

    def _drop(self, known: KnownRate) -> None:
        self._executor.forget(known.uid)
        self._asked.pop(known.uid, None)
        if self._told.pop(known.uid, None):
            self._mailbox.put(RateDeleted(known.uid))

    def _ask_prometheus(self) -> None:
        """Ask for the iterations of each TargetRate that is due, with one query of each at a time."""
        now = self._monotonic()
        for uid, (asked, selected) in self._told.items():
            query, last = asked.rate.query, self._asked.get(uid)
            if query is None or uid in self._asking or (last is not None and now - last < ASK):
                continue
            self._asked[uid] = now
            self._asking.add(uid)
            namespace = asked.rate.name.partition("/")[0]
            pods = {m.name.partition("/")[2]: m.pod for m in selected.members if m.running}
            self._spawn(self._count(uid, query, namespace, pods))

    async def _count(self, uid: str, query: str, namespace: str, pods: dict[str, str]) -> None:
        answer = await self._prometheus.count(query, namespace, pods)
        self._asking.discard(uid)
        if uid in self._told:
            self._mailbox.put(PodsCounted(uid, query, self._monotonic(), answer.counts, answer.flaw))

    async def _read_late(self, known: KnownRate) -> None:
        if await self._late.rate(known):
            self._consider(known)
