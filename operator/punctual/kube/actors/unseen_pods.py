"""Pods that were created and never seen: a watch may miss both their coming and their going.

An informer that is cut off lists anew, and tells what it knew and no longer finds. A pod that came and went meanwhile
it never knew: nothing would tell its Pool, which would wait for it for ever. So such pods are looked for.
"""

import asyncio
from typing import Final

import structlog

from punctual.errors import ClusterError, NotFound
from punctual.kube.actors.pod_events import PodEvents
from punctual.kube.api.resources import PODS
from punctual.kube.cluster.client import ApiClient
from punctual.kube.writes.operations import Outcome
from punctual.kube.writes.writer import Writer

PATIENCE: Final = 30.0
"""Seconds after its create in which a pod is seen, mostly: a watch that is silent for longer is begun anew."""
LOOK: Final = 10.0
"""Seconds between two looks."""

log = structlog.get_logger(__name__)


class UnseenPods:
    """Looks for pods of one term until cancelled. One that is gone counts as one that was not created."""

    def __init__(self, client: ApiClient, writer: Writer, pods: PodEvents) -> None:
        self._client = client
        self._writer = writer
        self._pods = pods

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            for key, create in self._writer.unseen(PATIENCE):
                if key.resource is PODS:
                    continue  # placeholders look after themselves
                try:
                    await self._client.get(PODS.path(namespace=create.namespace, name=create.body["metadata"]["name"]))
                except NotFound:
                    log.warning("pod_never_seen", pod=create.pod)
                    self._writer.observed(create.pod)
                    text = f"pod {create.pod} was deleted before it was seen"
                    self._pods.created(key.name, Outcome(key, create, "conflict", text))
                except ClusterError as error:
                    log.warning("unseen_pod_not_read", pod=create.pod, error=str(error))
