"""The windows of a reservation, between its status, the Pool and the jobs that name the reservation.

Pure functions, without the API server: a leader's `WindowController` and ``punctual plan`` use the same ones.
"""

from collections.abc import Iterator
from typing import Any, Final

from punctual import reasons
from punctual.kube import api
from punctual.kube.api.conditions import conditions, transition_times
from punctual.kube.known.reservations import KnownReservation, ReservationWindow
from punctual.notation.duration import format_time
from punctual.scheduling.model.events import ReservationApplied, Share
from punctual.scheduling.model.job import Verdict
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.model.wording import some

MESSAGE: Final = 1024


def restore(known: KnownReservation, status: api.ReservationStatus | None) -> None:
    """Load the recorded state of a reservation."""
    if status is None:
        return
    known.term.transition_times = transition_times(c.manifest() for c in status.conditions)
    known.term.finished = status.finish_time
    known.term.windows.clear()
    for w in status.windows:
        nodes = tuple(Share(node.name, node.processors) for node in w.nodes)
        window = ReservationWindow(w.start, w.end, w.state, w.reason, w.message, nodes, w.offer)
        known.term.windows[window_name(known, w.start)] = window
    known.term.recorded = known.held


def promised(known: KnownReservation, nodes: frozenset[str] | None, now: float) -> Iterator[ReservationApplied]:
    """Return the promises of a starting pool to a reservation that selects these nodes."""
    for name, window in known.term.windows.items():
        if window.held and window.end > now and not known.deleting:
            yield ReservationApplied(asked(known, name, window, nodes), window.nodes)


def asked(known: KnownReservation, name: str, window: ReservationWindow, nodes: frozenset[str] | None) -> Reservation:
    """Return the request to the Pool for a window. ``nodes``: those that it selects; None: any node."""
    there = sum(share.processors for share in window.nodes)
    # a promise stands even if the spec can no longer be read
    wanted = known.spec.processors or 0 if known.spec else there
    if nodes is not None and not wanted and window.nodes:  # the recorded nodes count, whatever their labels are now
        nodes = frozenset(share.node for share in window.nodes)
    return Reservation(
        uid=name,
        arrival=known.metadata.creation_timestamp,
        start=window.start,
        end=window.end,
        processors=max(wanted, 1) if nodes is None else wanted,
        nodes=nodes,
        group=known.uid,
        io_ratio=known.spec.transfer_share if known.spec else 0.0,
    )


def window_name(known: KnownReservation, start: float) -> str:
    """Return the Pool's name of a window."""
    return f"{known.uid}/{start:.6f}"


def processors(window: ReservationWindow) -> str:
    """Return how many processors a window holds, for a message."""
    return some(sum(share.processors for share in window.nodes), "processor")


def reservation_status(known: KnownReservation, *, epoch: int, now: float) -> dict[str, Any]:
    """Return a reservation's status."""
    answered = sorted((w for w in known.term.windows.values() if w.state is not None), key=lambda w: w.start)
    made = api.ReservationStatus(
        epoch=epoch,
        observed_generation=known.metadata.generation,
        state="Refused" if known.term.refusal else answered[0].state if answered else None,
        start=answered[0].start if answered else None,
        end=answered[0].end if answered else None,
        processors=sum(share.processors for share in answered[0].nodes) if answered else None,
        windows=[_window(w) for w in answered],
        finish_time=known.term.finished,
    )
    found = conditions(
        _verdicts(known, answered), known.term.transition_times, now=now, generation=known.metadata.generation
    )
    return {**made.manifest(), "conditions": found}


def _window(window: ReservationWindow) -> api.ReservedWindow:
    assert window.state is not None
    return api.ReservedWindow(
        start=window.start,
        end=window.end,
        state=window.state,
        reason=window.reason,
        message=window.message[:MESSAGE],
        nodes=[api.ReservedNode(name=share.node, processors=share.processors) for share in window.nodes],
        offer=window.offer,
    )


def _verdicts(known: KnownReservation, answered: list[ReservationWindow]) -> dict[str, Verdict | None]:
    """Return its conditions."""
    if known.term.refusal:
        return {"Admitted": Verdict("False", *known.term.refusal)}
    if not answered:
        return {}
    refused = [w for w in answered if w.state == "Refused"]
    short = [w for w in answered if w.held and w.reason != reasons.FEASIBLE]
    active = next((w for w in answered if w.state == "Active"), None)
    admitted = Verdict("True", answered[0].reason, answered[0].message)
    if len(answered) > 1:
        ahead = f"{len(answered)} windows until {format_time(answered[-1].end)}: {processors(answered[0])} each"
        admitted = Verdict("True", reasons.FEASIBLE, ahead)
    if refused:
        first = refused[0]
        which = f"{len(refused)} of {len(answered)} windows, that of {format_time(first.start)}: "
        admitted = Verdict("False", first.reason, (which if len(answered) > 1 else "") + first.message)
    elif short:
        admitted = Verdict("True", short[0].reason, f"window of {format_time(short[0].start)}: {short[0].message}")
    until = f"{processors(active)} until {format_time(active.end)}" if active else "no window is active"
    return {
        "Admitted": admitted,
        "Active": Verdict("True", reasons.ACTIVE, until) if active else Verdict("False", reasons.NOT_ACTIVE, until),
        "Completed": Verdict("True", reasons.COMPLETED, "the last window is over") if known.term.finished else None,
    }
