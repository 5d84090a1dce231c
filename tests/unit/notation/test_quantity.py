from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.notation.quantity import (
    PATTERN,
    format_bytes,
    format_cores,
    parse_bytes,
    parse_cores,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("500m", "0.5"),
        ("1", "1"),
        (2, "2"),
        (0.25, "0.25"),
        ("2Gi", 2**31),
        ("1.5Ki", "1536"),
        ("128974848", "128974848"),
        ("129e6", "129000000"),
        ("129E6", "129000000"),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("100u", "0.0001"),
        ("5n", "0.000000005"),
        (".5", "0.5"),
        ("5.", "5"),
        ("-3k", "-3000"),
        ("+1M", "1000000"),
        ("1e3", "1000"),
        ("1e+3", "1000"),
        ("1E3", "1000"),
        ("1e003", "1000"),
        ("50e-2", "0.5"),
        ("100.5m", "0.1005"),
        ("0.1Ki", "102.4"),
        ("1e999", 2**63 - 1),  # no amount is larger, in Kubernetes either
    ],
)
def test_quantities_of_kubernetes(value, number):
    assert parse_quantity(value) == Decimal(number)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "m",
        "1 Gi",
        "1gi",
        "1KI",
        "two",
        "0x10",
        "1e",
        "1.2.3",
        "٣",
        "NaN",
        "1e9999",
        "1K",
        "1GiB",
        "1e3Ki",
        "1e3m",
        "1_000",
    ],
)
def test_what_is_no_quantity_is_told_what_would_be(value):
    with pytest.raises(ValueError, match="such as 500m, 2 or 2Gi"):
        parse_quantity(value)


def test_cores_and_bytes_are_plain_numbers():
    assert parse_cores("1500m") == 1.5
    assert parse_bytes("1Mi") == 2**20
    assert parse_bytes("1m") == 1  # rounded up, as Kubernetes does
    assert parse_bytes("0.1Ki") == 103
    assert parse_cores("0.1000000000001") == 0.100000001
    assert parse_cores("1e3") == 1000.0


@given(st.integers(0, 4_096_000))
def test_printed_cores_read_back(milli):
    assert parse_cores(format_cores(milli / 1000)) == milli / 1000


@given(st.integers(0, 2**60))
def test_printed_bytes_read_back(count):
    assert parse_bytes(format_bytes(count)) == count


@given(st.from_regex(PATTERN, fullmatch=True).filter(lambda text: len(text) <= 32))
def test_whatever_the_schema_takes_can_be_parsed(text):
    assert parse_quantity(text) >= 0
