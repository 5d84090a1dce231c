"""A clock that a test moves."""

import time
from types import SimpleNamespace


def clock(monotonic=time.monotonic, *, now=time.time):
    """Return a clock like that of an API client (`ServerClock`), which is never in doubt."""
    return SimpleNamespace(monotonic=monotonic, now=now, doubted=False)


NO_CLIENT = SimpleNamespace(clock=clock())
"""An API client that is asked for the time alone."""
