"""A whole collection, page by page, although the list breaks off on the way.

A list that begins anew after each failure never ends where pages are many: with one request in a hundred failing, a
list of 200 pages comes to its end in one of seven tries. So a page that failed is asked for again, and the pages before
it stay read. A continue token expires with the revision it is of (etcd forgets it after five to ten minutes): then the
API server names a token that continues behind the last object, at the present revision.

Pages may then be of different times. That is enough where each object is to be read once at some time after the walk
began, as in a takeover. It is not enough for what follows a watch from the list's resource version: see `informer`.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

from punctual.errors import ClusterError, Gone, Invalid
from punctual.kube.cluster.client import JSON, ApiClient, Listing

Patience = Callable[[ClusterError], Awaitable[None]]
"""Waits before the next try of what failed; raises where there is to be none."""


async def walk(
    client: ApiClient, path: str, *, patience: Patience, page: int = 500, accept: str = JSON
) -> AsyncGenerator[Listing, None]:
    """Yield each object that is there throughout at least once; more often only if the list has to begin anew.

    It begins anew where the API server neither knows the token any more nor names another. While a page is looked at
    the next one is fetched.
    """
    start = ""
    while True:
        pages = _ahead(client.pages(path, page=page, accept=accept, start=start))
        try:
            async with contextlib.aclosing(pages):
                async for some in pages:
                    yield some
                    start = some.rest
        except ClusterError as error:
            await patience(error)
            if isinstance(error, Gone | Invalid):
                start = error.resume if isinstance(error, Gone) else ""
        else:
            return


async def _ahead(pages: AsyncGenerator[Listing, None]) -> AsyncGenerator[Listing, None]:
    """Yield the same, each while the next is on its way: the server takes as long for a page as we do."""
    coming: asyncio.Task[Listing | None] | None = None
    try:
        while (some := await (coming or anext(pages, None))) is not None:
            coming = asyncio.ensure_future(_next(pages))
            yield some
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        await pages.aclose()


async def _next(pages: AsyncGenerator[Listing, None]) -> Listing | None:
    return await anext(pages, None)
