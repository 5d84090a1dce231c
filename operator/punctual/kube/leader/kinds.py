"""The loop over all kinds of a term: it guards, reads late, routes signals and outcomes.

An object is considered after each change of it and each signal that touches it, once for all signals of one event, and
only if the term decides and its status was read. Signals that come from considering an object are followed before the
loop returns. Kinds earlier in the order come first.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import structlog

from punctual.kube.actors.actors import Life
from punctual.kube.api.resources import Resource
from punctual.kube.cluster.caches import Caches
from punctual.kube.known.store import Known, Signal
from punctual.kube.takeover.kind import Kind
from punctual.kube.takeover.late import LateReader
from punctual.kube.writes.operations import Outcome, PutStatus
from punctual.kube.writes.writer import Writer

log = structlog.get_logger(__name__)


class Follower(Protocol):
    """Does what follows for objects of a kind that is not Punctual's. It decides nothing, and stores nothing."""

    resource: Resource

    def begin(self) -> None:
        """Begin: the takeover is done."""

    def hear(self, signal: Signal) -> None:
        """Take in a change."""

    def tend(self) -> None:
        """Do what is due every two seconds."""

    def wrote(self, outcome: Outcome) -> None:
        """Take in the outcome of an operation on such an object."""


class Kinds:
    """The kinds of a term."""

    def __init__(self, late: LateReader, writer: Writer, life: Life) -> None:
        self._late = late
        self._writer = writer
        self._life = life
        self._kinds: tuple[Kind[Any], ...] = ()
        self._followers: tuple[Follower, ...] = ()
        self._dirty: dict[Kind[Any], dict[str, Known]] = {}  # objects to be considered, by kind and uid
        self._batch: dict[Kind[Any], dict[str, Known]] = {}  # those to be considered with the next tick
        self._busy = False

    def order(self, kinds: Sequence[Kind[Any]], followers: Sequence[Follower] = ()) -> None:
        """Set the kinds, in the order in which they are taken over and considered, and what follows them."""
        self._kinds, self._followers = tuple(kinds), tuple(followers)
        self._dirty = {kind: {} for kind in kinds}
        self._batch = {kind: {} for kind in kinds if kind.batched}

    def __iter__(self) -> Any:
        return iter(self._kinds)

    # the term

    def begin(self) -> None:
        """Begin to decide: the takeover is done."""
        for kind in self._kinds:
            self._mark(kind, kind.begin())
            self._drain()
            if any(known.term.aside is not None for known in kind.store.values()):
                self._life.spawn(self._read_aside(kind))
        for follower in self._followers:
            follower.begin()

    def tick(self) -> None:
        """Do what is due four times a second."""
        for kind in self._kinds:
            kind.tick()
        for kind, batch in self._batch.items():
            self._mark(kind, list(batch.values()))
            batch.clear()
        self._drain()

    def tend(self) -> None:
        """Do what is due every two seconds."""
        for kind in self._kinds:
            self._mark(kind, kind.tend())
        self._drain()
        for follower in self._followers:
            follower.tend()

    def retire(self) -> None:
        """Submit what is to be written at the end of the term."""
        for kind in self._kinds:
            kind.retire()

    # changes

    def changed(self, resource: Resource, known: Known) -> None:
        """Take in that an object is new, edited or being deleted."""
        kind = self._of(resource)
        kind.edited(known)
        self._mark(kind, (known,))
        self._drain()

    def gone(self, resource: Resource, known: Known) -> None:
        """Take in that an object is gone."""
        kind = self._of(resource)
        kind.store.gone.add(known.uid)
        kind.gone(known)
        self._drain()

    def signal(self, kind: str, key: str) -> None:
        """Take in another change that may concern objects of any kind."""
        if not self._life.leads:
            return  # all objects are considered when the term begins
        for one in self._kinds:
            touched = one.touched_by(Signal(kind, key))
            if one in self._batch:
                self._batch[one].update((known.uid, known) for known in touched)
            else:
                self._mark(one, touched)
        self._drain()
        for follower in self._followers:
            follower.hear(Signal(kind, key))

    def recorded(self, pool: str) -> list[Any]:
        """Return what is on record for a Pool (name) that starts."""
        return [event for kind in reversed(self._kinds) for event in kind.recorded(pool)]

    # decisions and their outcomes

    def carry_out(self, pool: str, action: Any) -> None:
        """Carry out an action of a Pool (name)."""
        for kind in self._kinds:
            if isinstance(action, kind.carries_out):
                kind.carry_out(pool, action)
        self._drain()

    def written(self, outcome: Outcome, write: PutStatus, caches: Caches) -> None:
        """Take in what became of a status. An object that is gone is removed from the caches."""
        kind, uid = self._of(outcome.key.resource), outcome.key.name
        known = kind.store.get(uid)
        if outcome.result == "gone":
            caches.forget(outcome.key.resource, uid)
        elif outcome.result == "done":
            if known is not None:
                kind.written(known, write.body["status"])
        else:
            log.error("status_refused", key=str(outcome.key), message=outcome.message)
            if known is not None:
                kind.refused(known, write, outcome.message)
        self._drain()

    def wrote(self, outcome: Outcome) -> None:
        """Take in the outcome of an operation on an object that is no status."""
        for kind in self._kinds:
            if kind.store.resource is outcome.key.resource:
                kind.wrote(outcome)
        self._drain()
        for follower in self._followers:
            if follower.resource is outcome.key.resource:
                follower.wrote(outcome)

    # the loop

    def _of(self, resource: Resource) -> Kind[Any]:
        return next(kind for kind in self._kinds if kind.store.resource is resource)

    def _mark(self, kind: Kind[Any], objects: Iterable[Known]) -> None:
        self._dirty[kind].update((known.uid, known) for known in objects)

    def _drain(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            while dirty := next(((kind, objects) for kind, objects in self._dirty.items() if objects), None):
                kind, objects = dirty
                self._consider(kind, objects.pop(next(iter(objects))))
        finally:
            self._busy = False

    def _consider(self, kind: Kind[Any], known: Known) -> None:
        if kind.store.get(known.uid) is not known:
            return  # it is gone since it was marked: a kind would take it up again, for ever
        if not self._life.leads or known.term.left_alone or known.term.reading:
            return  # an earlier leader's promise is not read (yet): the object would look undecided
        if kind.must_read(known):
            known.term.reading = True
            self._life.spawn(self._read(kind, known))
        else:
            kind.consider(known)

    async def _read(self, kind: Kind[Any], known: Known) -> None:
        """Read an object's status, then consider the object."""
        aside = known.term.aside is not None
        if await self._late.read(kind, known):
            self._mark(kind, (known,))
            self._drain()
            kind.found(known, aside=aside)

    async def _read_aside(self, kind: Kind[Any]) -> None:
        """Read, one by one, the objects that were put aside and are due. Decisions are written first."""
        for known in [known for known in kind.store.values() if known.term.aside is not None]:
            await asyncio.sleep(0)
            if known.term.aside is not None and not known.term.reading and kind.is_due(known):
                await self._writer.caught_up()
                if known.term.aside is not None and not known.term.reading:
                    await self._read(kind, known)
