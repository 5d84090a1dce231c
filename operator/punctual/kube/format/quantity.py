"""Converts Kubernetes quantities (``500m``, ``2Gi``, ``1e3``) to and from the float cores and int bytes used inside."""

import math
import re
from decimal import Decimal
from functools import lru_cache
from typing import Final

PATTERN: Final = r"^[0-9]+(\.[0-9]+)?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,2})?$"
"""Pattern of a resource quantity (never negative), for schemas."""

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]{1,32}(?:\.[0-9]{0,32})?|\.[0-9]{1,32})"
    r"(?P<suffix>Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
)
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@lru_cache(maxsize=4096)  # the pods of a cluster repeat the same requests
def parse_quantity(value: str | float) -> Decimal:
    """Return the number of a quantity. A ValueError names the correct form.

    The API server accepts bare numbers as well as strings, so both are accepted here.
    """
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{value!r} is not a quantity: write a number with a suffix, such as 500m, 2 or 2Gi")
    number, suffix = Decimal(match["sign"] + match["number"]), match["suffix"] or ""
    if suffix in _BINARY:
        return number * _BINARY[suffix]
    return number.scaleb(_DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:]))


def parse_cores(value: str | float) -> float:
    """Return CPU in cores: ``500m`` is 0.5."""
    return float(parse_quantity(value))


def parse_bytes(value: str | float) -> int:
    """Return memory in bytes. A fraction is rounded up, as in Kubernetes."""
    return math.ceil(parse_quantity(value))


def format_cores(cores: float) -> str:
    """Return CPU as a quantity, rounded to Kubernetes' resolution of a thousandth of a core.

    >>> format_cores(0.5), format_cores(2.0)
    ('500m', '2')
    """
    milli = round(cores * 1000)
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def format_bytes(count: int) -> str:
    """Return memory as a quantity, in the largest binary unit without a fraction.

    >>> format_bytes(2 * 2**30), format_bytes(1000)
    ('2Gi', '1000')
    """
    for suffix, size in reversed(_BINARY.items()):
        if count and count % size == 0:
            return f"{count // size}{suffix}"
    return str(count)
