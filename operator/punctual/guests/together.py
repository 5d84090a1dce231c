"""When places of a job that are as fast as their nodes let them be would end its work together."""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple


class GuestPlace(NamedTuple):
    """A place where chunks of a job run one after the other."""

    free: float
    """Seconds until it can work on what is left."""
    rate: float
    """Work that it does in a second, more than 0."""


def end_together(work: float, places: Iterable[GuestPlace]) -> float:
    """Return the seconds after which places that all work until then have done ``work``; infinite without places."""
    rate = done = 0.0  # of those that are free by then; what they would have done before the others are
    end = inf
    for place in sorted(places):
        if place.free >= end:
            break
        rate += place.rate
        done += place.rate * place.free
        end = (work + done) / rate
    return end
