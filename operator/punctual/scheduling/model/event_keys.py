"""The keys of a Pool's events: while events wait, an older one of the same key may be dropped.

A pod's end and its disappearance have different keys on purpose: the first carries the exit code, which must not be
lost if a pod ends and is deleted between two steps.
"""

from collections.abc import Hashable

from punctual.scheduling.model.events import (
    CreateRefused,
    Event,
    JobApplied,
    JobDeleted,
    NodeGone,
    NodeObserved,
    PodGone,
    PodObserved,
    PoolApplied,
    Reported,
    ReservationApplied,
    ReservationDeleted,
    UnitsCounted,
)


def key_of(event: Event) -> Hashable:  # noqa: C901, PLR0911  one line for each kind
    """Return the key of an event; of two events with one key, only the newer matters."""
    match event:
        case PoolApplied():
            return ("pool",)
        case JobApplied():
            return ("job", event.job.uid)
        case JobDeleted():
            return ("job", event.uid)
        case UnitsCounted():
            return ("counted", event.uid)
        case PodObserved():
            return ("pod", event.uid)
        case PodGone():
            return ("gone", event.namespace, event.name, event.uid)
        case CreateRefused():
            return ("refused", event.job, event.kind, event.begin, event.attempt)
        case NodeObserved() | NodeGone():
            return ("node", event.name)
        case Reported():
            return ("report", event.node)
        case ReservationApplied():
            return ("reservation", event.reservation.uid)
        case ReservationDeleted():
            return ("reservation", event.uid)


def merged(older: Event, newer: Event) -> Event:
    """Merge two events of one key: the newer one, and for reports the newest line of each pod."""
    if isinstance(older, Reported) and isinstance(newer, Reported):
        lines = {p.pod: p for p in (*older.pods, *newer.pods)}
        return Reported(newer.node, tuple(lines.values()))
    return newer
