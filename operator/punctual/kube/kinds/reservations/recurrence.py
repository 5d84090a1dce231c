"""The windows of a reservation: one, or recurring at the same time of day.

Days are calendar days. Across a change of clocks start and end keep their time of day, so the window is longer or
shorter by the change if it is over it. A time that the clocks skip is later by the skipped time. Of a time that occurs
twice, the first counts. A window keeps its length if its end would not be after its start.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from punctual import reasons
from punctual.errors import UserError
from punctual.kube.api import ReservationSpec

DAY: Final = 86400.0
"""Seconds of a day in a horizon. A calendar day may differ by an hour."""


class Span(NamedTuple):
    """Start and end, in seconds since 1970."""

    start: float
    end: float


class ComingWindows(NamedTuple):
    """The windows of a reservation that have not begun."""

    windows: list[Span]
    """Those that end within the horizon, by start."""
    behind: Span | None
    """The first that ends after the horizon. None: there is none."""


def windows(spec: ReservationSpec, now: float, horizon: float) -> ComingWindows:
    """Return the windows that begin at ``now`` or later. ``horizon`` is in seconds.

    Raises UserError if the time zone is unknown, or if one window may overlap the next.
    """
    length, again = spec.end - spec.start, spec.recurrence
    if again is None:
        once = Span(spec.start, spec.end)
        if once.start < now:
            return ComingWindows([], None)
        return ComingWindows([once], None) if once.end <= now + horizon else ComingWindows([], once)
    zone = _zone(again.time_zone)
    first, last = (datetime.fromtimestamp(at, zone).replace(tzinfo=None) for at in (spec.start, spec.end))
    # a day has 23 hours when clocks are put forward
    if max(length, (last - first).total_seconds()) > again.every * 86400.0 - 3600.0:
        text = "spec.end: must be at least an hour before the window comes again (spec.recurrence.every)"
        raise UserError(reasons.INVALID_SPEC, text)
    # a day earlier than needed, so that a change of clocks does not matter
    k = max(0, int((now - spec.start) / (again.every * 86400.0)) - 1)
    found: list[Span] = []
    while True:
        start, end = (_instant(at + timedelta(days=k * again.every), zone) for at in (first, last))
        k += 1
        if again.until is not None and start >= again.until:
            return ComingWindows(found, None)
        if start >= now:
            span = Span(start, end if end > start else start + length)
            if span.end > now + horizon:
                return ComingWindows(found, span)
            found.append(span)


def _instant(reading: datetime, zone: ZoneInfo) -> float:
    """Return when the clocks of a zone show it, via UTC: a difference within one zone is that of the readings."""
    return reading.replace(tzinfo=zone).astimezone(UTC).timestamp()


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:  # missing, a directory, or a path that leads outside
        text = f"spec.recurrence.timeZone: {name!r} is not known: write a name such as Europe/Berlin or UTC"
        raise UserError(reasons.INVALID_SPEC, text) from error
