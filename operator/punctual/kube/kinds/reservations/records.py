"""Reservations' statuses: read into their windows, and made from these. Pure functions, without the API server."""

from typing import Any, Final

from punctual.kube import api
from punctual.kube.api.conditions import conditions, transition_times
from punctual.kube.known.reservations import KnownReservation
from punctual.reservations.windows import ReservationWindow
from punctual.scheduling.model.events import Share

MESSAGE: Final = 1024


def restore(known: KnownReservation, status: api.ReservationStatus | None) -> None:
    """Load the recorded state of a reservation."""
    if status is None:
        return
    known.term.transition_times = transition_times(c.manifest() for c in status.conditions)
    windows = known.term.windows
    windows.finished = status.finish_time
    windows.by_name.clear()
    for w in status.windows:
        nodes = tuple(Share(node.name, node.processors) for node in w.nodes)
        window = ReservationWindow(w.start, w.end, w.state, w.reason, w.message, nodes, w.offer)
        windows.by_name[windows.name(w.start)] = window
    windows.recorded = windows.held


def reservation_status(known: KnownReservation, *, epoch: int, now: float) -> dict[str, Any]:
    """Return a reservation's status."""
    windows = known.term.windows
    answered = windows.answered
    made = api.ReservationStatus(
        epoch=epoch,
        observed_generation=known.metadata.generation,
        state="Refused" if windows.refusal else answered[0].state if answered else None,
        start=answered[0].start if answered else None,
        end=answered[0].end if answered else None,
        processors=answered[0].processors if answered else None,
        windows=[_window(w) for w in answered],
        finish_time=windows.finished,
    )
    found = conditions(windows.verdicts(), known.term.transition_times, now=now, generation=known.metadata.generation)
    return {**made.manifest(), "conditions": found}


def _window(window: ReservationWindow) -> api.WindowStatus:
    assert window.state is not None
    return api.WindowStatus(
        start=window.start,
        end=window.end,
        state=window.state,
        reason=window.reason,
        message=window.message[:MESSAGE],
        nodes=[api.ReservedNode(name=share.node, processors=share.processors) for share in window.nodes],
        offer=window.offer,
    )
