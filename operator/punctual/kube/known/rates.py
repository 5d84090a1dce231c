"""What is known of target rates."""

from dataclasses import dataclass, field
from typing import Any

from punctual.kube import api
from punctual.kube.api.resources import TARGET_RATES
from punctual.kube.known.store import Body, Described, InTerm, Store, StoreListener, asked_in
from punctual.rates.model import UNRECORDED, Record


@dataclass(slots=True)
class RateInTerm(InTerm):
    """What a term has read or decided about a TargetRate."""

    record: Record = UNRECORDED
    """What an earlier leader has left in its status."""
    status: dict[str, Any] = field(default_factory=dict)
    """Its status, as the API server takes it."""


@dataclass(slots=True)
class KnownRate(Described):
    """A TargetRate as it is now."""

    metadata: api.Metadata
    spec: api.TargetRateSpec | None
    """None: it cannot be read; ``flaw`` tells why."""
    flaw: str
    deleting: bool
    term: RateInTerm = field(default_factory=RateInTerm)

    def forget_term(self) -> None:
        """Forget what a term has read or decided."""
        self.term = RateInTerm()


class RateStore(Store[KnownRate]):
    """All target rates."""

    def __init__(self, listener: StoreListener) -> None:
        super().__init__(TARGET_RATES, listener)

    def _make(self, body: Body) -> KnownRate:
        meta = api.parse_metadata(body)
        rate, flaw = asked_in(body, api.TargetRate)
        return KnownRate(meta, rate.spec if rate else None, flaw, meta.deletion_timestamp is not None)

    def _edit(self, known: KnownRate, body: Body) -> bool:
        made = self._make(body)
        known.metadata, known.spec, known.flaw, known.deleting = made.metadata, made.spec, made.flaw, made.deleting
        return True
