import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.notation.duration import (
    MAX_SECONDS,
    PATTERN,
    TIME_PATTERN,
    TOO_LONG,
    format_duration,
    format_time,
    parse_duration,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45m", 2700),
        ("1h30m", 5400),
        ("1h30m0s", 5400),
        ("20ms", 0.02),
        ("2s", 2),
        ("2.5s", 2.5),
        ("9ms", 0.009),  # 9 * 0.001 is not
        ("250us", 0.00025),
        ("0s", 0),
        ("1m1h", 3660),  # Go takes any order
        ("1500ns", 1.5e-6),
        ("1.9ns", 1e-9),  # Go cuts each part to whole nanoseconds
        ("0.5ns0.5ns", 0),
        ("100µs", 0.0001),  # as Go prints it, with the micro sign
        ("100μs", 0.0001),  # with the Greek letter
        (".5h", 1800),
        ("1.h", 3600),
        ("+5m", 300),
        ("0.3333333333333333s", 0.333333333),
        ("000000045m", 2700),
        ("87600h", MAX_SECONDS),
    ],
)
def test_durations_as_users_write_them(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("45", "write 45s, 45m or 45h"),
        ("2d", "write 48h"),
        ("1w", "write 168h"),
        ("45M", "write 45m"),
        ("1H30M", "write 1h30m"),
        ("1h 30m", "write 1h30m"),
        ("PT1H30M", "write 1h30m"),
        ("45min", "such as 45m"),
        (".s", "such as 45m"),
        ("+", "such as 45m"),
        ("1h-5m", "such as 45m"),
        ("1000000000ns", "such as 45m"),
        ("", "such as 45m"),
        ("-5m", "such as 45m"),
        ("5 m", "write 5m"),
        ("45m\n", "write 45m"),
        ("٤٥m", "such as 45m"),
        ("1e3s", "such as 45m"),
    ],
)
def test_what_is_no_duration_is_told_what_would_be(text, hint):
    with pytest.raises(ValueError, match="is not a duration") as refused:
        parse_duration(text)
    assert hint in str(refused.value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-0.0, "0s"),
        (0.0000005, "0.5us"),
        (0.0025, "2.5ms"),
        (1, "1s"),
        (59.5, "59.5s"),
        (60, "1m"),
        (3600, "1h"),
        (5400, "1h30m"),
        (3601.25, "1h1.25s"),
        (-12, "-12s"),
        (0.9999999999, "1s"),
        (172800, "48h"),
    ],
)
def test_durations_are_printed_as_users_write_them(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "too_long"),
    [
        ("87600h", False),
        ("0087600h", False),
        ("0.123456789h", False),
        (".100000h", False),
        ("99999.999999h", False),
        ("100000h", True),
        ("1s100000.5h", True),
        ("10000000m", True),
        ("99999999ms", False),
        ("999999h999999h999999h", True),
        ("100000000µs100000h", True),
    ],
)
def test_a_part_that_may_overflow_the_nanoseconds_of_go_is_known(text, too_long):
    assert (re.search(TOO_LONG, text) is not None) == too_long
    assert not too_long or parse_duration(text) > MAX_SECONDS


@given(st.floats(0, MAX_SECONDS))
def test_a_printed_duration_reads_back_to_the_nanosecond(seconds):
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=1e-9, rel=1e-15)


@given(st.from_regex(PATTERN, fullmatch=True))
def test_whatever_the_schema_takes_can_be_parsed(text):
    assert parse_duration(text) >= 0


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.25Z", 1.25),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T19:00:00-05:00", 0),
        ("2026-01-02T03:04:05.123456Z", 1767323045.123456),
        ("2026-01-02T03:04:05.123456789Z", 1767323045.123456),
        ("2026-01-02T03:04:05.1234567891234Z", 1767323045.123456),
        ("2026-01-02T03:04:05-00:00", 1767323045),
    ],
)
def test_times_with_any_offset(text, epoch):
    assert parse_time(text) == pytest.approx(epoch, abs=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "2030-01-02",
        "2030-01-02T15:04:05",
        "2030-01-02 15:04:05Z",
        "2030-13-02T15:04:05Z",
        "2030-02-30T15:04:05Z",
        "2030-01-02T25:04:05Z",
        "0000-01-02T15:04:05Z",
        "2030-W01-2T15:04:05Z",
        "2030-01-02t15:04:05z",
        "2030-01-02T15:04:05z",
        "2030-01-02T15:04:05+0200",
        "2030-01-02T15:04:05+02",
        "2030-01-02T15:04:05 UTC",
        "2030-01-02T15:04Z",
        "2030-01-02T15:04:60Z",
        "2030-01-02T24:00:00Z",
        "2030-01-02T15:04:05.Z",
        "2030-01-02T15:04:05,5Z",
        "20300102T150405Z",
        "1893596645",
        "tomorrow",
        "",
    ],
)
def test_what_is_no_time_is_told_what_would_be(text):
    with pytest.raises(ValueError, match="such as 2030-01-02T15:04:05Z"):
        parse_time(text)


@given(st.floats(0, 250_000_000_000))
def test_a_printed_time_reads_back_to_the_microsecond(epoch):
    text = format_time(epoch)
    assert parse_time(text) == pytest.approx(epoch, abs=2e-6, rel=0)
    assert re.fullmatch(TIME_PATTERN, text)


def test_a_forecast_that_no_calendar_knows_is_written_as_the_last_day_of_all():
    assert format_time(1e15) == "9999-12-31T23:59:59Z"
    assert format_time(-1e15) == "0001-01-01T00:00:00Z"


@pytest.mark.parametrize("seconds", [1e15, 1e23, -1e15])
def test_a_span_of_ages_is_written_so_that_it_can_be_read_again(seconds):
    text = format_duration(seconds)
    assert abs(parse_duration(text.removeprefix("-"))) == 999_999_999 * 3600
    assert text.startswith("-") == (seconds < 0)
