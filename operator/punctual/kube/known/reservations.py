"""What is known of reservations and their windows."""

from dataclasses import dataclass, field

from punctual.kube import api
from punctual.kube.api.resources import RESERVATIONS
from punctual.kube.known.store import Body, Described, InTerm, NamedStore, StoreListener, asked_in, conditions_of
from punctual.reservations.recurrence import AskedWindows
from punctual.reservations.windows import Refusal, Windows, inside


@dataclass(slots=True)
class ReservationInTerm(InTerm):
    """What a term has read or decided about a reservation."""

    windows: Windows = field(kw_only=True)
    """Its windows, as requested and answered."""


@dataclass(slots=True)
class KnownReservation(Described):
    """A reservation as it is now."""

    metadata: api.Metadata
    pool: str
    spec: api.ReservationSpec | None
    """None: it cannot be read; ``flaw`` tells why."""
    flaw: str
    deleting: bool
    term: ReservationInTerm = field(init=False)

    def __post_init__(self) -> None:
        """Begin without a term."""
        self.forget_term()

    @property
    def asked(self) -> AskedWindows | None:
        """What its spec asks for. None: it cannot be read."""
        if (spec := self.spec) is None:
            return None
        again = spec.recurrence
        return AskedWindows(
            start=spec.start,
            end=spec.end,
            processors=spec.processors,
            transfer_share=spec.transfer_share,
            every=again.every if again else None,
            time_zone=again.time_zone if again else "UTC",
            until=again.until if again else None,
        )

    def forget_term(self) -> None:
        """Forget what a term has read or decided."""
        windows = Windows(self.uid, self.pool, self.metadata.creation_timestamp, self.metadata.namespace)
        self.term = ReservationInTerm(windows=windows)


class ReservationStore(NamedStore[KnownReservation]):
    """All reservations."""

    def __init__(self, listener: StoreListener) -> None:
        super().__init__(RESERVATIONS, listener)

    def standing(self, name: str, namespace: str) -> KnownReservation | None:
        """Return the reservation of that name; None: there is none, or it is being deleted."""
        known = self.named(name, namespace)
        return None if known is None or known.deleting else known

    def inside(self, name: str, namespace: str, pool: str) -> str | Refusal | None:
        """Return the window for a job of this pool that names a reservation, a refusal, or None: it must wait."""
        known = self.standing(name, namespace)
        return inside(known.term.windows if known else None, name, namespace=namespace, pool=pool)

    def of_pool(self, pool: str) -> list[KnownReservation]:
        """Return the reservations of a pool."""
        return [known for known in self.values() if known.pool == pool]

    def _make(self, body: Body) -> KnownReservation:
        meta = api.parse_metadata(body)
        reservation, flaw = asked_in(body, api.Reservation)
        spec = reservation.spec if reservation else None
        pool = spec.pool if spec else str((body.get("spec") or {}).get("pool"))
        return KnownReservation(meta, pool, spec, flaw, meta.deletion_timestamp is not None)

    def _edit(self, known: KnownReservation, body: Body) -> bool:
        made = self._make(body)  # the pool of a reservation cannot change
        known.metadata, known.spec, known.flaw, known.deleting = made.metadata, made.spec, made.flaw, made.deleting
        return True


def holds_nothing(body: Body) -> bool:
    """Whether a reservation is refused: its status answers its spec, and none of its windows has processors."""
    status, meta = body.get("status"), body["metadata"]
    if not isinstance(status, dict) or meta.get("deletionTimestamp") is not None:
        return False
    windows = status.get("windows") or []
    return (
        status.get("observedGeneration") == meta.get("generation")
        and conditions_of(status).get("Admitted", {}).get("status") == "False"
        and isinstance(windows, list)
        and all(isinstance(window, dict) and window.get("state") == "Refused" for window in windows)
    )
