"""Pause of the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspend the garbage collector while the body runs: for code that creates no cycles but keeps many objects.

    The collector would scan all of those again and again. Reference counting still frees unused objects.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
