"""The newest of each object of one kind, as the API server has them.

kopf's events and a new leader's lists fill a store, on one loop, on each replica. Statuses are not kept: a new leader
reads them anew, after its stamp.

A replica may lead more than once, and another replica may have decided in between. So each object has two parts. The
facts come from its body, and stay as long as the process runs. What a term has read from its status or decided is in
``term``, which is replaced as a whole before and after each term. Only stores change facts, and a term changes nothing
but ``term``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from punctual.errors import UserError
from punctual.kube import api
from punctual.kube.api.conditions import TransitionTimes
from punctual.kube.api.meta import Metadata
from punctual.kube.api.resources import Resource

HIGHEST: Final = 2**30
"""Highest epoch that is believed: with an election a second it takes 34 years to get there. The number in
the Lease has 32 bits, so it leaves as many again above it, whatever number a status carries."""

Body = Mapping[str, Any]


class Signal(NamedTuple):
    """Something has changed that may concern objects of any kind: each kind knows which of its own."""

    kind: str
    """What has changed: "job", "pool", "nodes" (of a pool), "profile", "reservation", "namespace", "claim", "pods"
    (of users), "batch" (a Job), "gated" (pods of a Job at the gate), "answer" (the status of a job), or "left" (a
    job that is gone)."""
    key: str
    """Uid of a job, also of an answer, and of the Job of pods at the gate; name of a pool or namespace; namespace of
    pods; "namespace/name" of the others."""


@dataclass(slots=True)
class InTerm:
    """What a term has read or decided about an object.

    A status that was not read may hold an earlier leader's promise: its object would look undecided.
    """

    read: bool = False
    """Its status was read after the stamp."""
    reading: bool = False
    """It is being stamped and read."""
    left_alone: bool = False
    """Its status cannot be read or written: nothing is decided about it until it is edited."""
    aside: str | None = None
    """It was put aside at the takeover, neither stamped nor read: why it is settled, if it is."""
    transition_times: TransitionTimes = field(default_factory=dict)
    """Its conditions."""


class Known(Protocol):
    """An object as it is now."""

    deleting: bool

    @property
    def uid(self) -> str:
        """Its uid."""

    @property
    def namespace(self) -> str:
        """Its namespace; empty for a pool."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def generation(self) -> int:
        """The generation of its spec."""

    @property
    def created(self) -> float:
        """When it was created, on the API server's clock."""

    @property
    def term(self) -> InTerm:
        """What a term has read or decided about it."""

    def forget_term(self) -> None:
        """Forget what a term has read or decided."""


class Described:
    """An object that keeps its metadata."""

    __slots__ = ()
    metadata: Metadata

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.metadata.uid

    @property
    def namespace(self) -> str:
        """Its namespace; empty for a pool."""
        return self.metadata.namespace

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def generation(self) -> int:
        """The generation of its spec."""
        return self.metadata.generation

    @property
    def created(self) -> float:
        """When it was created, on the API server's clock."""
        return self.metadata.creation_timestamp


class StoreListener:
    """What is told of objects beside their store. Here it does nothing."""

    def see_epoch(self, epoch: int) -> None:
        """Take in an epoch that stands in a status."""

    def unreadable(self, kind: str, name: str, why: str) -> None:
        """Take in that the models refuse an object."""

    def job_is_new(self, uid: str) -> None:
        """Take in that a job was not known."""

    def job_is_unsettled(self, uid: str) -> None:
        """Take in that a job was settled when it was last seen, and is no longer."""


K = TypeVar("K", bound=Known)
R = TypeVar("R", bound=api.KindModel)


class Store(Mapping[str, K], Generic[K]):
    """Objects of one kind by uid."""

    def __init__(self, resource: Resource, listener: StoreListener) -> None:
        self.resource = resource
        self.gone: set[str] = set()
        """Uids of objects that were deleted in this term. A list may still contain them."""
        self._by_uid: dict[str, K] = {}
        self._listener = listener

    def __getitem__(self, uid: str) -> K:
        return self._by_uid[uid]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_uid)

    def __len__(self) -> int:
        return len(self._by_uid)

    def observe(self, body: Body) -> K | None:
        """Take in an object.

        Returns None if nothing has changed but its status, if it is older than what is known, or if it cannot be read.
        """
        self._listener.see_epoch(epoch_of(body))
        meta = body["metadata"]
        known = self._by_uid.get(meta["uid"])
        generation, deleting = meta.get("generation", 0), meta.get("deletionTimestamp") is not None
        if known is None:
            made = self._make(body)
            return made if made is not None and self._add(made) else None
        # a list may have been newer than the event that comes now
        if (generation, deleting) > (known.generation, known.deleting):
            return known if self._edit(known, body) else None
        if generation == known.generation:
            self._see_again(known, body)
        return None

    def forget(self, uid: str) -> K | None:
        """Take in that an object is gone."""
        return self._by_uid.pop(uid, None)

    def forget_term(self) -> None:
        """Forget what a term has read or decided. What watches said stays."""
        self.gone.clear()
        for known in self._by_uid.values():
            known.forget_term()

    def _add(self, made: K) -> bool:
        self._by_uid[made.uid] = made
        return True

    def _make(self, body: Body) -> K | None:
        """Return an object that is new. None: it cannot be read."""
        raise NotImplementedError

    def _edit(self, known: K, body: Body) -> bool:
        """Take in an edit or deletion; return whether it matters."""
        raise NotImplementedError

    def _see_again(self, known: K, body: Body) -> None:
        """Take in a body of the known generation."""


class NamedStore(Store[K]):
    """A store that also finds objects by name."""

    replaces = False
    """Whether an object takes the place of an earlier one of its name, though that is not known to be gone."""

    def __init__(self, resource: Resource, listener: StoreListener) -> None:
        super().__init__(resource, listener)
        self._named: dict[tuple[str, str], K] = {}  # of each name the one that was created last

    def named(self, name: str, namespace: str = "") -> K | None:
        """Return the object of that name. None: there is none."""
        return self._named.get((namespace, name))

    def forget(self, uid: str) -> K | None:
        """Take in that an object is gone."""
        known = super().forget(uid)
        if known is not None and self._named.get((known.namespace, known.name)) is known:
            del self._named[known.namespace, known.name]
        return known

    def _add(self, made: K) -> bool:
        named = self._named.get((made.namespace, made.name))
        newest = named is None or named.created <= made.created
        if self.replaces and not newest:
            return False
        if self.replaces and named is not None:
            del self._by_uid[named.uid]
        if newest:
            self._named[made.namespace, made.name] = made
        return super()._add(made)


def asked_in(body: Body, kind: type[R]) -> tuple[R | None, str]:
    """Return an object without its status, or None and what is wrong with it."""
    try:
        return api.parse_asked(kind, body), ""
    except UserError as error:
        return None, error.message


def epoch_of(body: Body) -> int:
    """Return the epoch of the leader that wrote a body's status; 0: no leader has."""
    return (body.get("status") or {}).get("epoch") or 0


def conditions_of(status: Body) -> dict[Any, Body]:
    """Return the conditions of a status, by type, whatever else is in it."""
    said = status.get("conditions")
    return {c.get("type"): c for c in said if isinstance(c, dict)} if isinstance(said, list) else {}


def metadata_of(known: Known) -> dict[str, Any]:
    """Return which object that is, as it says itself."""
    return {"uid": known.uid, "name": known.name, "namespace": known.namespace}
