"""What is known of reservations and their windows."""

from dataclasses import dataclass, field
from math import inf
from typing import Final, Literal

from punctual import reasons
from punctual.kube import api
from punctual.kube.api.resources import RESERVATIONS
from punctual.kube.known.jobs import KnownJob
from punctual.kube.known.store import Body, Described, InTerm, NamedStore, StoreListener, asked_in, conditions_of
from punctual.notation.duration import format_time
from punctual.scheduling.model.events import Share

WindowState = Literal["Booked", "Active", "Completed", "Refused"]
HELD: Final = frozenset({"Booked", "Active"})
"""States of a window that has processors reserved, now or later."""


Refusal = tuple[str, str]
"""(reason, message)"""


@dataclass(slots=True)
class ReservationWindow:
    """One window of a reservation, and how it stands."""

    start: float
    end: float
    state: WindowState | None = None
    """None: it has no answer yet."""
    reason: str = ""
    message: str = ""
    nodes: tuple[Share, ...] = ()
    offer: float | None = None
    """Of a refused one the start that would do."""

    @property
    def held(self) -> bool:
        """Whether its processors are reserved, now or later."""
        return self.state in HELD


@dataclass(slots=True)
class ReservationInTerm(InTerm):
    """What a term has read or decided about a reservation."""

    windows: dict[str, ReservationWindow] = field(default_factory=dict)
    """By what the Pool calls each."""
    refusal: tuple[str, str] | None = None
    """(reason, message) of what the edge has against it: then no Pool is asked."""
    finished: float | None = None
    recorded: bool = False
    """A window that it holds is in its written status: what counts on it may be promised."""
    comes: float = inf
    """When its next window that is not asked about comes within the pool's horizon."""
    look: float = 0.0
    """When it has to be looked at by the clock alone."""


@dataclass(slots=True)
class KnownReservation(Described):
    """A reservation as it is now."""

    metadata: api.Metadata
    pool: str
    spec: api.ReservationSpec | None
    """None: it cannot be read; ``flaw`` tells why."""
    flaw: str
    deleting: bool
    term: ReservationInTerm = field(default_factory=ReservationInTerm)

    @property
    def held(self) -> bool:
        """Whether any of its windows is."""
        return any(window.held for window in self.term.windows.values())

    def forget_term(self) -> None:
        """Forget what a term has read or decided."""
        self.term = ReservationInTerm()


class Reservations(NamedStore[KnownReservation]):
    """All reservations."""

    def __init__(self, listener: StoreListener) -> None:
        super().__init__(RESERVATIONS, listener)

    def standing(self, name: str, namespace: str) -> KnownReservation | None:
        """Return the reservation of that name; None: there is none, or it is being deleted."""
        known = self.named(name, namespace)
        return None if known is None or known.deleting else known

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


def window_of(job: KnownJob, reservations: Reservations) -> str | Refusal | None:
    """Return the window for a job that names a reservation; see `inside`."""
    found = reservations.standing(job.reservation, job.namespace)
    return inside(found, job.reservation, namespace=job.namespace, pool=job.owner.pool)


def inside(known: KnownReservation | None, name: str, *, namespace: str, pool: str) -> str | Refusal | None:
    """Return the window for a job of this pool that names a reservation, or a refusal.

    None: its answer is not known, or not written yet.
    """
    if known is None:
        text = f"there is no Reservation {name} in namespace {namespace}: create it, and this job is evaluated"
        return reasons.RESERVATION_NOT_FOUND, text
    if known.pool != pool:
        text = f"Reservation {name} is of Pool {known.pool}, spec.pool of this job is {pool}"
        return reasons.RESERVATION_REFUSED, text
    if known.held:
        return known.uid if known.term.recorded else None
    if (
        known.term.comes < inf
        and known.term.windows
        and all(w.state == "Completed" for w in known.term.windows.values())
    ):
        text = f"Reservation {name}: no window is reserved, the next is evaluated at {format_time(known.term.comes)}"
        return reasons.RESERVATION_REFUSED, text
    why = "it is over" if known.term.finished is not None else known.term.refusal[1] if known.term.refusal else ""
    if known.term.windows and all(w.state == "Refused" for w in known.term.windows.values()):
        why = next(iter(known.term.windows.values())).message
    return (reasons.RESERVATION_REFUSED, f"Reservation {name}: {why}") if why else None


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
