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

DAY: Final = 86400.0
"""Seconds of a day as a horizon counts them: those of a calendar may be an hour off."""


class Span(NamedTuple):
    """From when until when, seconds since 1970."""

    start: float
    end: float


class ComingWindows(NamedTuple):
    """The windows of a reservation that have not begun."""

    windows: list[Span]
    """Those that end within the horizon, by their start."""
    behind: Span | None
    """The first that ends behind it; None: there is none."""


def windows(spec: ReservationSpec, now: float, horizon: float) -> ComingWindows:
    """Return the windows that begin at ``now`` or later; ``horizon`` is in seconds.

    Raises UserError where the time zone is not known, or one window may run into the next.
    """
    length, again = spec.end - spec.start, spec.recurrence
    if again is None:
        once = Span(spec.start, spec.end)
        if once.start < now:
            return ComingWindows([], None)
        return ComingWindows([once], None) if once.end <= now + horizon else ComingWindows([], once)
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
            return ComingWindows(found, None)
        if start >= now:
            span = Span(start, start + length)
            if span.end > now + horizon:
                return ComingWindows(found, span)
            found.append(span)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:  # not there, a folder of them, or a path that leads out
        text = f"spec.recurrence.timeZone: {name!r} is not known: write a name such as Europe/Berlin or UTC"
        raise UserError(reasons.INVALID_SPEC, text) from error
