"""Lists a whole collection page by page, and continues after failures.

A list that restarts after each failure never ends if there are many pages: with one request in a hundred failing, a
list of 200 pages completes in one of seven tries. A failed page is therefore requested again, and the earlier pages
stay valid. A continue token expires with its revision (etcd removes it after five to ten minutes). The API server then
returns a token that continues after the last object at the present revision.

Pages may therefore be of different times. This suffices if each object must be read once at some time after the start,
as in a takeover. It does not suffice to start a watch from the list's resource version; see `informer`.

These lists name no resource version, so they are consistent reads. One that is older than an earlier one shows that the
API server's store was set back (`punctual.kube.known.revision`).
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

from punctual.errors import ClusterError, Gone, Invalid
from punctual.kube.cluster.client import JSON, ApiClient, Listing
from punctual.kube.known.revision import check, newest

Patience = Callable[[ClusterError], Awaitable[None]]
"""Waits before the next try after a failure. Raises if no further try is wanted."""


async def walk(
    client: ApiClient,
    path: str,
    *,
    patience: Patience,
    page: int = 500,
    accept: str = JSON,
    field_selector: str = "",
) -> AsyncGenerator[Listing, None]:
    """Yield each object that exists throughout, at least once. Objects repeat only if the list has to restart.

    It restarts if the API server has forgotten the token and names no other. While a page is processed, the next one is
    fetched. Raises StoreFellBack if the list is older than one that the client has walked through before.
    """
    start, before = "", client.listed.get(path, "")
    while True:
        pages = _ahead(client.pages(path, page=page, accept=accept, start=start, field_selector=field_selector))
        try:
            async with contextlib.aclosing(pages):
                async for some in pages:
                    check(path, before, some.resource_version)
                    client.listed[path] = newest(client.listed.get(path, ""), some.resource_version)
                    yield some
                    start = some.rest
        except ClusterError as error:
            await patience(error)
            if isinstance(error, Gone | Invalid):
                start = error.resume if isinstance(error, Gone) else ""
        else:
            return


async def _ahead(pages: AsyncGenerator[Listing, None]) -> AsyncGenerator[Listing, None]:
    """Yield the same pages, and fetch the next one meanwhile.

    The server takes as long for a page as the operator.
    """
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
