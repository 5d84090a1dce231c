"""What is known of pools."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from punctual.control.cost_estimation import ClassSpeed
from punctual.kube import api
from punctual.kube.api.resources import POOLS
from punctual.kube.known.store import Body, Described, InTerm, NamedStore, StoreListener, asked_in
from punctual.scheduling.model.pool_spec import PoolRecord, PoolSpec


@dataclass(slots=True, kw_only=True)
class PoolInTerm(InTerm):
    """What a term has read or decided about a pool."""

    in_force: api.PoolSelectors
    """Which nodes, jobs and reservations it takes: as its spec says, or said before an edit that was refused or is not
    tested yet."""
    spec: PoolSpec | None = None
    """The whole spec in force, once its Pool has said it."""
    unstamped: bool = False
    """Its status could not be stamped: it is not led until it can."""
    record: PoolRecord | None = None
    """What an earlier leader has left, until the pool is started."""
    classes: Mapping[str, ClassSpeed] = field(default_factory=dict)
    """How the classes of its nodes compare."""


@dataclass(slots=True)
class KnownPool(Described):
    """A pool as it is now."""

    metadata: api.Metadata
    spec: api.PoolSpec
    finalizers: tuple[str, ...]
    deleting: bool
    term: PoolInTerm

    def forget_term(self) -> None:
        """Forget what a term has read or decided."""
        self.term = PoolInTerm(in_force=self.spec)


class PoolStore(NamedStore[KnownPool]):
    """All pools that can be read."""

    replaces = True

    def __init__(self, listener: StoreListener) -> None:
        super().__init__(POOLS, listener)

    def _make(self, body: Body) -> KnownPool | None:
        pool, flaw = asked_in(body, api.Pool)
        if pool is None:
            self._listener.unreadable("Pool", body["metadata"]["name"], flaw)
            return None
        meta, term = pool.metadata, PoolInTerm(in_force=pool.spec)
        return KnownPool(meta, pool.spec, tuple(meta.finalizers), meta.deletion_timestamp is not None, term)

    def _edit(self, known: KnownPool, body: Body) -> bool:
        self._see_again(known, body)
        if (made := self._make(body)) is None:
            return False
        known.metadata, known.spec, known.deleting = made.metadata, made.spec, made.deleting
        return True

    def _see_again(self, known: KnownPool, body: Body) -> None:
        known.finalizers = tuple(body["metadata"].get("finalizers") or ())
