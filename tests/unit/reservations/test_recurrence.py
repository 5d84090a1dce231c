"""When windows are, over changes of clocks too."""

from dataclasses import replace
from itertools import pairwise

import pytest
import yaml

from punctual.errors import UserError
from punctual.kube.api import Reservation
from punctual.kube.known.directory import Directory
from punctual.notation.duration import format_time, parse_time
from punctual.reservations.recurrence import AskedWindows, ComingWindows, Span, windows

DAY = 86400.0
HORIZON = 28 * DAY


def spec(start, hours=2.0, **again):
    begin = parse_time(start)
    return AskedWindows(start=begin, end=begin + 3600 * hours, processors=1, **again)


def starts(asked, now):
    return [format_time(w.start) for w in windows(asked, parse_time(now), HORIZON).windows]


def test_a_window_counts_when_it_ends_within_the_horizon():
    asked = spec("2030-01-02T22:00:00Z")
    only = Span(asked.start, asked.end)
    assert windows(asked, asked.end - HORIZON, HORIZON) == ComingWindows([only], None)
    assert windows(asked, asked.end - HORIZON - 1, HORIZON) == ComingWindows([], only)
    assert windows(asked, asked.start + 1, HORIZON) == ComingWindows([], None)


def test_a_window_that_has_begun_is_none():
    assert starts(spec("2030-01-02T22:00:00Z"), "2030-01-02T22:00:01Z") == []


def test_a_daily_window_keeps_its_time_of_day_when_clocks_are_put_forward_and_back():
    spring = spec(
        "2030-03-29T22:00:00+01:00", every=1, time_zone="Europe/Berlin", until=parse_time("2030-04-02T00:00:00Z")
    )
    assert starts(spring, "2030-03-29T00:00:00Z") == [
        "2030-03-29T21:00:00Z",
        "2030-03-30T21:00:00Z",
        "2030-03-31T20:00:00Z",
        "2030-04-01T20:00:00Z",
    ]
    autumn = spec(
        "2030-10-26T22:00:00+02:00", every=1, time_zone="Europe/Berlin", until=parse_time("2030-10-29T00:00:00Z")
    )
    assert starts(autumn, "2030-10-26T00:00:00Z") == [
        "2030-10-26T20:00:00Z",
        "2030-10-27T21:00:00Z",
        "2030-10-28T21:00:00Z",
    ]


def test_a_start_that_clocks_skip_is_later_by_what_they_skip():
    asked = spec("2030-03-30T02:30:00+01:00", every=1, time_zone="Europe/Berlin")
    assert starts(asked, "2030-03-30T00:00:00Z")[:3] == [
        "2030-03-30T01:30:00Z",
        "2030-03-31T01:30:00Z",  # 03:30 on the clock
        "2030-04-01T00:30:00Z",
    ]


def test_a_start_that_comes_twice_is_the_first_of_the_two():
    asked = spec("2030-10-26T02:30:00+02:00", every=1, time_zone="Europe/Berlin")
    assert starts(asked, "2030-10-26T00:00:00Z")[:3] == [
        "2030-10-26T00:30:00Z",
        "2030-10-27T00:30:00Z",
        "2030-10-28T01:30:00Z",
    ]


SPRING, AUTUMN = "2030-03-31", "2030-10-27"
"""Nights in Berlin: the clock goes from 02:00 to 03:00, and from 03:00 back to 02:00."""
NIGHTS = {
    "over the hour that is skipped": (SPRING, "01:00", "04:00", "00:00Z", "02:00Z"),
    "ends in that hour": (SPRING, "01:00", "02:30", "00:00Z", "01:30Z"),  # 03:30 on the clock
    "begins in that hour": (SPRING, "02:30", "04:00", "01:30Z", "02:00Z"),
    "is all in that hour": (SPRING, "02:15", "02:45", "01:15Z", "01:45Z"),
    "begins in that hour and ends with it": (SPRING, "02:30", "03:00", "01:30Z", "02:00Z"),  # its length is kept
    "over the hour that comes twice": (AUTUMN, "01:00", "04:00", "23:00Z", "03:00Z"),
    "ends in the hour that comes twice": (AUTUMN, "01:00", "02:30", "23:00Z", "00:30Z"),  # the first
    "begins in the hour that comes twice": (AUTUMN, "02:30", "04:00", "00:30Z", "03:00Z"),
    "is all in the hour that comes twice": (AUTUMN, "02:15", "02:45", "00:15Z", "00:45Z"),
    "ends before the change": (AUTUMN, "00:00", "02:00", "22:00Z", "00:00Z"),
    "begins after the change": (SPRING, "03:00", "05:00", "01:00Z", "03:00Z"),
}


@pytest.mark.parametrize(("day", "begin", "end", "starts_at", "ends_at"), NIGHTS.values(), ids=NIGHTS)
def test_both_ends_are_what_the_clock_on_the_wall_shows(day, begin, end, starts_at, ends_at):
    offset = "+01:00" if day == SPRING else "+02:00"
    first = f"{day[:-2]}{int(day[-2:]) - 3:02}"
    asked = spec(f"{first}T{begin}:00{offset}", every=1, time_zone="Europe/Berlin")
    length = parse_time(f"{first}T{end}:00Z") - parse_time(f"{first}T{begin}:00Z")
    asked = replace(asked, end=asked.start + length)
    found = windows(asked, asked.start, HORIZON).windows
    assert [w.end - w.start for w in found[:2]] == [length, length]
    assert [(format_time(w.start)[11:16] + "Z", format_time(w.end)[11:16] + "Z") for w in found[3:4]] == [
        (starts_at, ends_at)
    ]
    assert [w.end - w.start for w in found[4:]] == [length] * len(found[4:])
    assert all(a.end <= b.start for a, b in pairwise(found))


def test_the_first_window_is_as_it_is_written_when_clocks_change_in_it():
    asked = spec("2030-03-30T22:00:00+01:00", hours=7, every=1, time_zone="Europe/Berlin")  # until 06:00
    found = windows(asked, asked.start, HORIZON).windows
    assert [w.end - w.start for w in found[:3]] == [7 * 3600.0, 8 * 3600.0, 8 * 3600.0]
    assert found[0] == Span(asked.start, asked.end)


@pytest.mark.parametrize("every", [1, 7, 10])
def test_windows_of_the_horizon_are_booked(every):
    asked = spec("2030-01-02T22:00:00Z", every=every)
    now = asked.start + 1000 * DAY + 1
    found, behind = windows(asked, now, HORIZON)
    assert all(now <= w.start and w.end <= now + HORIZON for w in found)
    assert {b.start - a.start for a, b in pairwise([*found, behind])} == {every * DAY}
    assert found[0].start - now < every * DAY
    assert behind.end > now + HORIZON


def test_a_window_behind_the_horizon_is_told_of_and_not_booked():
    asked = spec("2030-01-02T22:00:00Z", every=90)
    found, behind = windows(asked, parse_time("2030-01-03T00:00:00Z"), HORIZON)
    assert found == []
    assert format_time(behind.start) == "2030-04-02T22:00:00Z"


def test_none_begins_at_the_end_or_later():
    asked = spec("2030-01-02T22:00:00Z", every=1, until=parse_time("2030-01-04T22:00:00Z"))
    assert starts(asked, "2030-01-01T00:00:00Z") == ["2030-01-02T22:00:00Z", "2030-01-03T22:00:00Z"]
    assert starts(asked, "2030-02-01T00:00:00Z") == []


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", "Europe", "/etc/localtime"])
def test_a_zone_that_is_not_known_is_named(zone):
    with pytest.raises(UserError, match=r"spec\.recurrence\.timeZone"):
        windows(spec("2030-01-02T22:00:00Z", every=1, time_zone=zone), 0.0, HORIZON)


def test_a_window_may_not_run_into_the_next():
    assert windows(spec("2030-01-02T22:00:00Z", hours=23, every=1), 0.0, HORIZON)
    with pytest.raises(UserError, match=r"spec\.end: must be at least an hour before"):
        windows(spec("2030-01-02T22:00:00Z", hours=23.1, every=1), 0.0, HORIZON)


@pytest.mark.parametrize("now", ["2026-02-01T00:00:00Z", "2031-07-15T12:00:00Z", "2150-01-01T00:00:00Z"])
def test_the_example_of_the_docs_has_windows_within_the_horizon_at_any_date(now):
    body = yaml.safe_load(Reservation.EXAMPLE)
    known = Directory().reservations.observe({**body, "metadata": {**body["metadata"], "uid": "u"}})
    assert len(starts(known.asked, now)) in {27, 28}
