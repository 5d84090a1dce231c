"""Spans of time for people."""


def clock(seconds: float) -> str:
    """Return seconds in the form of a clock: 0:42, 1:05:00, -0:03.

    >>> clock(42.4), clock(3900), clock(-3)
    ('0:42', '1:05:00', '-0:03')
    """
    whole = round(abs(seconds))
    sign = "-" if seconds < 0 and whole else ""
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    return f"{sign}{hours}:{minutes:02d}:{rest:02d}" if hours else f"{sign}{minutes}:{rest:02d}"
