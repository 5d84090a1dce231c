"""Primes above 10^12: how many, how many twins, and the longest stretch without any.

A unit is a window of 2^18 numbers, sieved by the primes up to its square root; every window costs the same to a few
per cent. Windows know nothing of each other, so twins and gaps across their borders are found when they are joined:
within a chunk here, between chunks in the reduce.

    python primes.py               the chunk's units; alone: PUNCTUAL_TOTAL=40 python primes.py
    python primes.py reduce        joins the chunks' results
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from itertools import compress
from math import isqrt
from typing import NamedTuple

from punctual import worker

START = 10**12
WINDOW = 1 << 18


class Primes(NamedTuple):
    """What is known of a stretch of numbers; ``gap`` follows the prime ``gap_after``, the smallest such."""

    number: int
    twins: int
    first: int
    last: int
    gap: int
    gap_after: int


NONE = Primes(0, 0, 0, 0, 0, 0)


def join(left: Primes, right: Primes) -> Primes:
    """Return what is known of two stretches, the right one following the left one."""
    if not (left.number and right.number):
        return left if left.number else right
    between = right.first - left.last
    gap, after = max(
        (left.gap, left.gap_after),
        (between, left.last),
        (right.gap, right.gap_after),
        key=lambda one: (one[0], -one[1]),
    )
    return Primes(
        left.number + right.number, left.twins + right.twins + (between == 2), left.first, right.last, gap, after
    )


def joined(parts: Iterable[Primes]) -> Primes:
    """Return what is known of stretches that follow each other."""
    total = NONE
    for part in parts:
        total = join(total, part)
    return total


def primes_up_to(limit: int) -> list[int]:
    """Return all primes up to the limit, by Eratosthenes' sieve."""
    sieve = bytearray([1]) * (limit + 1)
    sieve[:2] = b"\0\0"
    for number in range(2, isqrt(limit) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, limit + 1, number)))
    return list(compress(range(limit + 1), sieve))


def window(unit: int, divisors: list[int]) -> Primes:
    """Sieve the odd numbers of one window; ``divisors``: the odd primes up to the square root of its end."""
    begin = START + unit * WINDOW
    half = WINDOW // 2
    sieve = bytearray([1]) * half  # place i is begin + 1 + 2 i
    for prime in divisors:
        at = -(begin + 1) % prime
        at = (at if at % 2 == 0 else at + prime) // 2
        if at < half:
            sieve[at::prime] = bytes((half - at - 1) // prime + 1)
    found = list(compress(range(begin + 1, begin + WINDOW, 2), sieve))
    gaps = [after - before for before, after in zip(found, found[1:])]  # noqa: B905, RUF007  Python 3.9 has neither
    longest = max(gaps)
    return Primes(len(found), gaps.count(2), found[0], found[-1], longest, found[gaps.index(longest)])


def main() -> None:
    """Work on the chunk, or reduce."""
    if sys.argv[1:] == ["reduce"]:
        whole = joined(Primes(*json.loads(data)) for _, _, data in worker.results())
        print(f"{whole.number} primes from {whole.first} to {whole.last}, {whole.twins} twins,")
        print(f"none for {whole.gap} numbers after {whole.gap_after}")
    else:
        units = worker.units()
        divisors = primes_up_to(isqrt(START + worker.span()[1] * WINDOW))[1:]
        whole = joined(window(unit, divisors) for unit in units)
    worker.result(json.dumps(whole))


if __name__ == "__main__":
    main()
