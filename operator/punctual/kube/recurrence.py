"""When the windows of a reservation are: once, or again and again at the same time of day.

Days are those of a calendar: over a change of clocks the start keeps its time of day, and the window its length. A
start that clocks skip is later by what they skip; of one that comes twice the first is meant.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from punctual import reasons
from punctual.errors import UserError
from punctual.kube.api import ReservationSpec

HORIZON: Final = 28 * 86400.0
"""Seconds ahead in which all windows are booked; of those behind it only the next, if there is none before."""


class Span(NamedTuple):
    """From when until when, seconds since 1970."""

    start: float
    end: float


def windows(spec: ReservationSpec, now: float) -> list[Span]:
    """Return the windows that begin at ``now`` or later, those of the horizon, at least one if there is any.

    Raises UserError where the time zone is not known, or one window may run into the next.
    """
    length, again = spec.end - spec.start, spec.recurrence
    if again is None:
        return [Span(spec.start, spec.end)] if spec.start >= now else []
    zone = _zone(again.time_zone)
    if length > again.every * 86400.0 - 3600.0:  # a day is as short as 23 hours where clocks are put forward
        text = "spec.end: must be at least an hour before the window comes again (spec.recurrence.every)"
        raise UserError(reasons.INVALID_SPEC, text)
    first = datetime.fromtimestamp(spec.start, zone).replace(tzinfo=None)
    # a day before what is needed: an hour more or less is of no account then
    k = max(0, int((now - spec.start) / (again.every * 86400.0)) - 1)
    found: list[Span] = []
    while True:
        local = first + timedelta(days=k * again.every)
        # by way of UTC: the difference of two times of one zone would be that of what clocks show
        start = local.replace(tzinfo=zone).astimezone(UTC).timestamp()
        k += 1
        if again.until is not None and start >= again.until:
            return found
        if start >= now:
            if found and start >= now + HORIZON:
                return found
            found.append(Span(start, start + length))


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:  # not there, a folder of them, or a path that leads out
        text = f"spec.recurrence.timeZone: {name!r} is not known: write a name such as Europe/Berlin or UTC"
        raise UserError(reasons.INVALID_SPEC, text) from error
