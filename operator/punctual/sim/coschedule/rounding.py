"""Times that are used up bit by bit, without what rounding leaves of them."""

from typing import Final

TINY: Final = 1e-9
"""Time that is not counted: work that just fits into a slice does not wait for another one by rounding."""


def less(amount: float, spent: float) -> float:
    """Return what is left of a time; 0 for a rest that rounding leaves."""
    rest = amount - spent
    return rest if rest > TINY else 0.0
