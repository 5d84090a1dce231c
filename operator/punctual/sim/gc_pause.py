"""The garbage collector, kept from looking."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Let the collector wait while the body runs: one that makes no cycles, but much that is kept.

    It would look through all of that time and again. What is no longer needed is freed all the same.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
