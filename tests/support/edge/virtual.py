"""Puts virtual time, and randomness by seed, where programs look for them. Import it before the product.

``time.monotonic``, ``time.time``, ``uuid.uuid4``, ``secrets.token_hex`` and the functions of ``random`` are the only
sources that the product has. While no virtual loop runs, the clocks are the real ones.
"""

import asyncio
import random
import secrets
import time
import uuid

from cluster_model.clock import BEGIN

from edge.loop import Loop

_monotonic, _time, _running = time.monotonic, time.time, asyncio._get_running_loop


def monotonic():
    """Return the monotonic clock of the process that runs."""
    loop = _running()
    if not isinstance(loop, Loop):
        return _monotonic()
    process = loop.current.process
    return process.epoch + process.rate * loop.now


def wall():
    """Return the wall clock of the process that runs."""
    loop = _running()
    return BEGIN + loop.now + loop.current.process.wall if isinstance(loop, Loop) else _time()


def install():
    """Replace the sources of time and randomness in this interpreter."""
    time.monotonic, time.time = monotonic, wall
    secrets.token_hex = lambda count=32: f"{random.getrandbits(8 * count):0{2 * count}x}"
    uuid.uuid4 = lambda: uuid.UUID(int=random.getrandbits(128), version=4)
