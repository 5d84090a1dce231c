"""The target rates of a term: one actor controls all of them.

It is told what is asked and which pods are selected, when these change. Nothing is decided about a TargetRate before
its status was read after the stamp. The actor's clock is this replica's monotonic one, so that a clock that is set does
not change what was measured.

Prometheus is asked every few seconds for the iterations of TargetRates with a query.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from punctual import wire
from punctual.errors import UserError
from punctual.kube import api
from punctual.kube.actors.actors import Life
from punctual.kube.actors.tools import Tools
from punctual.kube.api.conditions import transition_times
from punctual.kube.cluster.client import Json
from punctual.kube.kinds.rates.executor import RateExecutor
from punctual.kube.kinds.rates.prometheus import Prometheus
from punctual.kube.kinds.rates.records import applied, members, reported, to_record
from punctual.kube.known.rates import KnownRate
from punctual.kube.known.store import Signal
from punctual.kube.takeover.kind import Kind
from punctual.rates.control import RateControl
from punctual.rates.model import (
    Action,
    Event,
    MembersSeen,
    PodsCounted,
    RateApplied,
    RateDeleted,
    key_of,
)
from punctual.runtime.actor import Actor
from punctual.runtime.mailbox import Mailbox

ASK: Final = 3.0
"""Seconds between two queries for one TargetRate: Prometheus scrapes less often, mostly."""


class Rates(Kind[KnownRate]):
    """All target rates."""

    batched = True  # pods come and go by the hundred

    def __init__(self, tools: Tools, prometheus: Prometheus, life: Life) -> None:
        super().__init__(tools.directory.rates, tools.recorder)
        self._tools = tools
        self._caches = tools.caches
        self._executor = RateExecutor(tools)
        self._prometheus = prometheus
        self._clock = tools.clock
        monotonic = tools.clock.monotonic
        self._life = life
        self._mailbox: Mailbox[Event] = Mailbox(key_of, monotonic=monotonic)
        self._actor: Actor[Event, Action] = Actor(
            RateControl(),
            self._mailbox,
            self._executor,
            now=monotonic,
            doubted=lambda: tools.clock.doubted,
            monotonic=monotonic,
        )
        self._told: dict[str, tuple[RateApplied, MembersSeen]] = {}
        self._asked: dict[str, float] = {}  # when Prometheus was asked for a TargetRate last
        self._asking: set[str] = set()  # TargetRates with a query that is not answered yet

    async def restore(self, body: Json, unwritable: str) -> None:
        """Read the status of a TargetRate. It holds no promise: one that cannot be read is written anew."""
        if (known := self.taken(body, unwritable)) is None:
            return
        try:
            status = api.parse_status(api.TargetRateStatus, body)
        except UserError as error:
            self.report_unreadable(body, f"its status cannot be read and is written anew: {error.message}")
            return
        if status is not None:
            known.term.transition_times = transition_times(c.manifest() for c in status.conditions)
            known.term.record, known.term.status = to_record(status), body["status"]

    def begin(self) -> list[KnownRate]:
        """Start the control with all target rates that were read. The others are considered when they are."""
        unread = []
        for known in self.store.values():
            if known.term.read and not known.term.left_alone:
                self.consider(known)
            else:
                unread.append(known)
        self._life.spawn(self._actor.run(self._mailbox.take()))
        return unread

    def gone(self, known: KnownRate) -> None:
        """Take in that a TargetRate is gone."""
        self._executor.forget(known)
        self._asked.pop(known.uid, None)
        if self._told.pop(known.uid, None):
            self._mailbox.put(RateDeleted(known.uid))

    def touched_by(self, signal: Signal) -> Iterator[KnownRate]:
        """Return the target rates of a namespace with other pods or labels, or of a pool that changed."""
        match signal:
            case Signal("pods" | "namespace", namespace):
                return (known for known in self.store.values() if known.namespace == namespace)
            case Signal("pool" | "nodes", pool):
                return (known for known in self.store.values() if known.spec and known.spec.pool == pool)
        return iter(())

    def reported(self, report: wire.Report, pods: Iterable[wire.PodReport]) -> None:
        """Take in a node's report. ``pods``: those among its pods that are no chunk pods."""
        if self._told:
            self._mailbox.put(reported(report, pods, at=self._clock.monotonic(), epoch=self._tools.epoch))

    def tick(self) -> None:
        """Ask Prometheus, and tell the agents whether all pods are known."""
        self._ask_prometheus()
        left_alone = any(known.term.left_alone for known in self.store.values())
        self._tools.set_points.applications_complete = self._executor.begun and not left_alone

    @property
    def silent(self) -> float:
        """Seconds since the last step of the control."""
        return self._actor.silent

    def consider(self, known: KnownRate) -> None:
        """Tell the control how a TargetRate is now, and its pods."""
        if known.deleting:
            self.gone(known)
            return
        now = applied(known, self._caches), members(known, self._caches)
        before = self._told.get(known.uid)
        self._told[known.uid] = now
        for event in now:
            if before is None or event not in before:
                self._mailbox.put(event)

    def _ask_prometheus(self) -> None:
        """Ask for the iterations of each TargetRate that is due, with one query of each at a time."""
        now = self._clock.monotonic()
        for uid, (asked, selected) in self._told.items():
            query, last = asked.rate.query, self._asked.get(uid)
            if query is None or uid in self._asking or (last is not None and now - last < ASK):
                continue
            self._asked[uid] = now
            self._asking.add(uid)
            namespace = asked.rate.name.partition("/")[0]
            pods = {m.name.partition("/")[2]: m.pod for m in selected.members if m.running}
            self._life.spawn(self._count(uid, query, namespace, pods))

    async def _count(self, uid: str, query: str, namespace: str, pods: dict[str, str]) -> None:
        answer = await self._prometheus.count(query, namespace, pods)
        self._asking.discard(uid)
        if uid in self._told:
            self._mailbox.put(PodsCounted(uid, query, self._clock.monotonic(), answer.counts, answer.flaw))
