"""Converts Kubernetes quantities (``500m``, ``2Gi``, ``1e3``) to and from the float cores and int bytes used inside."""

import math
import re
from decimal import Decimal
from functools import lru_cache
from typing import Final

PATTERN: Final = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?$"
"""Pattern of a resource quantity (never negative), for schemas."""

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]{1,32}(?:\.[0-9]{0,32})?|\.[0-9]{1,32})"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?"
)
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_MOST = Decimal(2**63 - 1)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@lru_cache(maxsize=4096)  # the pods of a cluster repeat the same requests
def parse_quantity(value: str | float) -> Decimal:
    """Return the number of a quantity, at most 2**63 - 1 as in Kubernetes. A ValueError names the correct form.

    The API server accepts bare numbers as well as strings, so both are accepted here.
    """
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{value!r} is not a quantity: write a number with a suffix, such as 500m, 2 or 2Gi")
    number, suffix = Decimal(match["sign"] + match["number"]), match["suffix"] or ""
    if suffix in _BINARY:
        number *= _BINARY[suffix]
    else:
        number = number.scaleb(_DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:]))
    return max(-_MOST, min(number, _MOST))


def parse_cores(value: str | float) -> float:
    """Return CPU in cores: ``500m`` is 0.5. A fraction is rounded up to the ninth decimal, as in Kubernetes."""
    return math.ceil(parse_quantity(value) * 10**9) / 10**9


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
