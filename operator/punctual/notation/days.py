"""Calendar days in a time zone: the same time of day, so many days later. Reads no clock, only the time zone database.

A time that the clocks skip is later by the skipped time. Of a time that occurs twice, the first counts.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo


def time_zone(name: str) -> ZoneInfo | None:
    """Return the time zone of that name in the IANA database. None: there is none."""
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # missing, a directory, or a path that leads outside
        return None


def days_later(at: float, days: int, zone: ZoneInfo) -> float:
    """Return when the clocks show the same time of day as at a moment (seconds since 1970), so many days later."""
    reading = _reading(at, zone) + timedelta(days=days)
    # via UTC: a difference within one zone is that of the readings
    return reading.replace(tzinfo=zone).astimezone(UTC).timestamp()


def shown_between(start: float, end: float, zone: ZoneInfo) -> float:
    """Return how many seconds the clocks go on from start to end, changes of clocks included."""
    return (_reading(end, zone) - _reading(start, zone)).total_seconds()


def _reading(at: float, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(at, zone).replace(tzinfo=None)
