"""Converts durations and times between Kubernetes' formats and the float seconds used inside.

A duration is Go's: ``45m``, ``1h30m``, ``20ms``, ``2.5s`` (units ns, us, ms, s, m, h), so kubectl, CEL's
``duration()`` and other operators read it the same way. What Go's ``time.ParseDuration`` takes is taken here, if it has
a unit, is not negative, and has at most nine digits before a point. Go has no unit for days, and neither has this
module. A time is RFC 3339 with an offset, its letters in upper case as in Go; inside it is seconds since
1970-01-01T00:00:00Z. Nothing here reads a clock.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Final

PATTERN: Final = r"^\+?(([0-9]{1,9}(\.[0-9]*)?|\.[0-9]+)([nuµμm]?s|m|h))+$"
"""Pattern of a duration, for schemas (valid in RE2 and Python)."""

TIME_PATTERN: Final = (
    r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?"
    r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)
"""Pattern of a time, for schemas. It does not check the number of days in a month."""

ASKED_PATTERN: Final = TIME_PATTERN.replace("[0-9]{4}", "(19[7-9][0-9]|2[01][0-9]{2})", 1)
"""The same for times that a user may request: from 1970 to 2199."""

DAYS: Final = r"^[1-9][0-9]{0,2}[dw]$"
"""Pattern of whole days or weeks. They are calendar days, so changes of clocks may change their hours."""

REAL: Final = ASKED_PATTERN.replace(
    r"(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
    r"((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))",
    1,
)
"""Times on days that exist in every year. CEL's timestamp() does not fail on them."""

TOO_LONG: Final = r"(^|[+a-z])0*[1-9]([0-9]{5}[0-9.]*h|[0-9]{7}[0-9.]*m([^s]|$))"
"""Pattern of durations with a part longer than `MAX_SECONDS`. Without one, 32 characters cannot overflow Go's
nanoseconds."""

MAX_SECONDS: Final = 87600 * 3600.0
"""Ten years: the longest valid duration, far from the overflow of Go's nanoseconds."""

YEAR_2200: Final = 7_258_118_400.0
"""The first time too late to be requested. Inside, times must keep their microseconds."""

_PART = re.compile(r"([0-9.]+)([nuµμm]?s|m|h)")
_WHOLE = re.compile(PATTERN)
_TIME = re.compile(TIME_PATTERN)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62_135_596_800.0, 253_402_300_799.0  # the years 1 and 9999: the range of RFC 3339
_MOST = 999_999_999 * 3600 * 10**9
_NANOSECONDS = {
    "ns": 1,
    **dict.fromkeys(("us", "µs", "μs"), 1_000),  # with the micro sign, and with the Greek letter
    "ms": 1_000_000,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}


@lru_cache(maxsize=1024)
def parse_duration(text: str) -> float:
    """Return the seconds of a duration. A ValueError names the correct form.

    Most jobs use the same few durations, so equal texts share one float.

    >>> parse_duration("1h30m"), parse_duration("20ms")
    (5400.0, 0.02)
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration: write {_suggestion(text)}")
    # in decimal, because 9 * 0.001 is not 0.009 in floats; each part in whole nanoseconds, as in Go
    return sum(int(Decimal(n) * _NANOSECONDS[unit]) for n, unit in _PART.findall(text)) / 10**9


def _suggestion(text: str) -> str:
    if re.fullmatch(r"[0-9]{1,9}", text):
        return f"{text}s, {text}m or {text}h, whichever is meant"
    if days := re.fullmatch(r"([0-9]{1,4})([dw])", text):
        return f"{int(days[1]) * (24 if days[2] == 'd' else 168)}h (there is no unit for days or weeks)"
    plain = re.sub(r"\s", "", text).lower().removeprefix("pt")
    if _WHOLE.fullmatch(plain):
        return plain
    return "it with units ns, us, ms, s, m, h, such as 45m, 1h30m or 20ms"


def parse_days(text: str) -> int:
    """Return the days of a text. A ValueError names the correct form.

    >>> parse_days("1d"), parse_days("2w")
    (1, 14)
    """
    if not re.fullmatch(DAYS, text):
        raise ValueError(f"{text!r} is not a number of days or weeks: write whole ones, such as 1d or 2w")
    return int(text[:-1]) * (7 if text[-1] == "w" else 1)


def format_days(days: int) -> str:
    """Return days as a user would write them.

    >>> format_days(1), format_days(14)
    ('1d', '2w')
    """
    return f"{days}d" if days % 7 else f"{days // 7}w"


def format_duration(seconds: float) -> str:
    """Return ``seconds`` in the format of a duration, to the nanosecond. A negative value gets a minus.

    A value with more hours than can be parsed again becomes the longest that can.

    >>> format_duration(5400), format_duration(0.0025), format_duration(-12)
    ('1h30m', '2.5ms', '-12s')
    """
    nanoseconds = min(round(abs(seconds) * 10**9), _MOST)
    sign = "-" if seconds < 0 and nanoseconds else ""
    if nanoseconds < 10**9:
        unit = "s" if nanoseconds == 0 else "ms" if nanoseconds >= 10**6 else "us"
        return f"{sign}{_decimal(nanoseconds, _NANOSECONDS[unit])}{unit}"
    hours, rest = divmod(nanoseconds, _NANOSECONDS["h"])
    minutes, rest = divmod(rest, _NANOSECONDS["m"])
    parts = [f"{hours}h" * bool(hours), f"{minutes}m" * bool(minutes), f"{_decimal(rest, 10**9)}s" * bool(rest)]
    return sign + "".join(parts)


def _decimal(count: int, unit: int) -> str:
    """Return count/unit without an exponent and without trailing zeros."""
    whole, rest = divmod(count, unit)
    digits = f"{rest * 10**9 // unit:09d}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def parse_time(text: str) -> float:
    """Return the seconds since 1970 (UTC) of an RFC 3339 time. A ValueError names the correct form."""
    try:
        if _TIME.fullmatch(text):
            return (datetime.fromisoformat(text) - _EPOCH).total_seconds()
    except (ValueError, OverflowError):
        pass  # such as a thirteenth month: the pattern does not know the calendar
    raise ValueError(f"{text!r} is not a time: write it with date and offset, such as 2030-01-02T15:04:05Z")


def format_time(epoch: float) -> str:
    """Return RFC 3339 in UTC, to the microsecond if there is a fraction.

    Times after the year 9999 become its last second.

    Forecasts reach it: a billion units that take an hour each instead of the declared microsecond.

    >>> format_time(0), format_time(1.25)
    ('1970-01-01T00:00:00Z', '1970-01-01T00:00:01.250000Z')
    """
    moment = _EPOCH + timedelta(seconds=min(max(epoch, _FIRST), _LAST))
    return moment.isoformat().removesuffix("+00:00") + "Z"


def format_micro_time(epoch: float) -> str:
    """Return a MicroTime of the API, always with microseconds.

    >>> format_micro_time(0)
    '1970-01-01T00:00:00.000000Z'
    """
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
