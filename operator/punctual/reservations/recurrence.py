"""The windows of a reservation: one, or recurring at the same time of day.

Days are calendar days. Across a change of clocks start and end keep their time of day, so the window is longer or
shorter by the change if it is over it. See :mod:`punctual.notation.days` for times that clocks skip or show twice.
A window keeps its length if its end would not be after its start.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from punctual import reasons
from punctual.errors import UserError
from punctual.notation.days import days_later, shown_between, time_zone

DAY: Final = 86400.0
"""Seconds of a day in a horizon. A calendar day may differ by an hour."""


class Span(NamedTuple):
    """Start and end, in seconds since 1970."""

    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedWindows:
    """What a reservation's spec asks for. Times are seconds since 1970."""

    start: float
    """Of the first window."""
    end: float
    processors: int | None = None
    """None: all those of the nodes that it selects."""
    transfer_share: float = 0.0
    """The first part of a window in which the link is kept free."""
    every: int | None = None
    """Calendar days after which the window comes asked. None: it does not."""
    time_zone: str = "UTC"
    """Name in the IANA database: the window comes again when the clocks there show the same time of day."""
    until: float | None = None
    """No window begins then or later. None: they come for ever."""


class ComingWindows(NamedTuple):
    """The windows of a reservation that have not begun."""

    windows: list[Span]
    """Those that end within the horizon, by start."""
    behind: Span | None
    """The first that ends after the horizon. None: there is none."""


def windows(asked: AskedWindows, now: float, horizon: float) -> ComingWindows:
    """Return the windows that begin at ``now`` or later. ``horizon`` is in seconds.

    Raises UserError if the time zone is unknown, or if one window may overlap the next.
    """
    length, every = asked.end - asked.start, asked.every
    if every is None:
        once = Span(asked.start, asked.end)
        if once.start < now:
            return ComingWindows([], None)
        return ComingWindows([once], None) if once.end <= now + horizon else ComingWindows([], once)
    if (zone := time_zone(asked.time_zone)) is None:
        text = f"spec.recurrence.timeZone: {asked.time_zone!r} is not known: write a name such as Europe/Berlin or UTC"
        raise UserError(reasons.INVALID_SPEC, text)
    # a day has 23 hours when clocks are put forward
    if max(length, shown_between(asked.start, asked.end, zone)) > every * DAY - 3600.0:
        text = "spec.end: must be at least an hour before the window comes again (spec.recurrence.every)"
        raise UserError(reasons.INVALID_SPEC, text)
    # a day earlier than needed, so that a change of clocks does not matter
    k = max(0, int((now - asked.start) / (every * DAY)) - 1)
    found: list[Span] = []
    while True:
        start, end = (days_later(at, k * every, zone) for at in (asked.start, asked.end))
        k += 1
        if asked.until is not None and start >= asked.until:
            return ComingWindows(found, None)
        if start >= now:
            span = Span(start, end if end > start else start + length)
            if span.end > now + horizon:
                return ComingWindows(found, span)
            found.append(span)
