"""Where on Earth do clocks stand furthest from the sun? Asked of every time zone, for every day from 1970 to 2037.

The input is ``zones.tab``, one line per zone with its country and place: the time zone database's zone.tab without
comments, in the public domain, made from the system's own when the image is built:

    grep -v '^#' /usr/share/zoneinfo/zone.tab > zones.tab

A unit is an equal part of that file's bytes, and the records that start in it (worker.records); whatever the job's
number of units, each zone is looked at once. The sun is the mean one: four minutes per degree of longitude.

    python clocks.py [FILE]     the chunk's zones; alone: all of them
    python clocks.py reduce     joins the chunks' results
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from punctual import worker

HERE = Path(__file__).resolve().parent
WIDEST = 10
"""Zones that a result names: it must fit into 4 kB."""
DAY = 86400
NOONS = [
    datetime(1970, 1, 1, 12, tzinfo=timezone.utc) + timedelta(days)  # noqa: UP017  Python 3.9 has no datetime.UTC
    for days in range((datetime(2038, 1, 1) - datetime(1970, 1, 1)).days)  # noqa: DTZ001  a difference of dates
]


def look(record: bytes) -> dict[str, Any]:
    """Return one zone's sums over all days: seconds from the sun, days of summer time."""
    country, place, name = record.decode().split("\t")[:3]
    sun = sun_offset(place)
    zone = ZoneInfo(name)
    seconds = summer = 0
    for noon in NOONS:
        local = noon.astimezone(zone)
        offset = local.utcoffset()
        assert offset is not None  # it has a zone
        # a day off at the date line is no hour off
        seconds += abs((round(offset.total_seconds()) - sun + DAY // 2) % DAY - DAY // 2)
        summer += bool(local.dst())
    return {"zones": 1, "seconds": seconds, "summer": summer, "widest": [[seconds, name, country]]}


def sun_offset(place: str) -> int:
    """Return seconds from UTC of the mean sun at a place such as +5230+01322 or -690022+0393524 (ISO 6709).

    >>> sun_offset("+5230+01322")
    3208
    """
    found = re.fullmatch(r"[+-]\d{4}(?:\d\d)?([+-])(\d{3})(\d\d)(\d\d)?", place)
    if found is None:
        raise ValueError(f"{place!r} is not a place of zone.tab")
    sign, degrees, minutes, seconds = found.groups()
    east = (int(degrees) * 3600 + int(minutes) * 60 + int(seconds or 0)) / 15
    return round(-east if sign == "-" else east)


def joined(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Add sums up and keep the widest; the order of the parts does not matter."""
    total = {"zones": 0, "seconds": 0, "summer": 0}
    widest: list[list[Any]] = []
    for part in parts:
        for name in total:
            total[name] += part[name]
        widest += part["widest"]
    return total | {"widest": sorted(widest, key=lambda one: (-one[0], one[1]))[:WIDEST]}


def main() -> None:
    """Work on the chunk, or reduce."""
    if sys.argv[1:] == ["reduce"]:
        whole = joined(json.loads(data) for _, _, data in worker.results())
        days = len(NOONS)
        print(f"{whole['zones']} zones, {days} days: {whole['seconds'] / whole['zones'] / days / 60:.1f} minutes away")
        for seconds, name, country in whole["widest"]:
            print(f"{seconds / days / 60:7.1f}  {name} ({country})")
    else:
        path = sys.argv[1] if len(sys.argv) > 1 else HERE / "zones.tab"
        whole = joined(look(record) for record in worker.records(path))
    worker.result(json.dumps(whole))


if __name__ == "__main__":
    main()
