"""Work that goes on beside a test."""

import asyncio
import contextlib


@contextlib.asynccontextmanager
async def beside(*work):
    """Let coroutines run until the block has ended, then cancel them. Raises what one of them has raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(found, asyncio.CancelledError):
                raise found
