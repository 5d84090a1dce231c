"""What has become of objects of our kinds although nobody told: the answer to all that can go wrong with a watch.

kopf tells of no deletion when it has to list again, and it may stumble over an answer for good. So what is known is
compared with what is there from time to time. A list is no proof, it may be older than what is known: what differs is
asked for before it is believed.
"""

from collections.abc import AsyncIterator

from punctual.errors import NotFound
from punctual.kube.cluster.client import METADATA, ApiClient, Json, Resource
from punctual.kube.cluster.directory import JOBS, POOLS, PROFILES, RESERVATIONS, Directory, Known
from punctual.kube.cluster.walk import Patience, walk

RESOURCES = (POOLS, JOBS, PROFILES, RESERVATIONS)


async def unheard(
    client: ApiClient, directory: Directory, patience: Patience
) -> AsyncIterator[tuple[Resource, str | None, Json]]:
    """Yield (resource, change, body) as kopf would have: what the directory lacks, has as it was, or has too much."""
    for resource in RESOURCES:
        known, listed = directory.metadata(resource), set()
        async for page in walk(client, resource.path(), patience=patience, accept=METADATA):
            for item in page.items:
                meta = item["metadata"]
                listed.add(meta["uid"])
                if is_news(meta, known.get(meta["uid"])) and (body := await still_there(client, resource, meta)):
                    yield resource, None, body
        for lost in (one for uid, one in known.items() if uid not in listed):
            if await still_there(client, resource, lost.metadata) is None:
                yield resource, "DELETED", {"metadata": lost.metadata}


def is_news(meta: Json, known: Known | None) -> bool:
    """Whether an object with this metadata is another than the one that is known."""
    if known is None or meta["generation"] > known.generation:
        return True
    return "deletionTimestamp" in meta and not known.deleting


async def still_there(client: ApiClient, resource: Resource, meta: Json) -> Json | None:
    """Return the body of this very object; None where it is gone."""
    try:
        body = await client.get(resource.path(namespace=meta.get("namespace", ""), name=meta["name"]))
    except NotFound:
        return None
    return body if body["metadata"]["uid"] == meta["uid"] else None
