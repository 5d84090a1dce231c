"""The label on this replica's own pod by which the Service selects the leader.

One write at a time is repeated until it is done. Leadership is often lost when the API server is hard to reach, and the
danger is two pods with the label: the agents' reports would be split between them. This module decides nothing.
"""

import asyncio
import contextlib
from typing import Final

import structlog

from punctual.errors import ClusterError
from punctual.kube.api.resources import PODS
from punctual.kube.cluster.client import ApiClient
from punctual.labels import LEADER_LABEL

DOUBT: Final = 10.0
"""Seconds between two writes of a label that may be there although it should not."""

log = structlog.get_logger(__name__)


class LeaderLabel:
    """``show(leading=…)`` sets the wanted state and ``run()`` writes it.

    Outside a cluster there is no pod to write to.
    """

    def __init__(self, client: ApiClient, *, namespace: str, pod: str) -> None:
        self._client = client
        self._path = PODS.path(namespace=namespace, name=pod) if pod else None
        self._leading = False
        self._shown: bool | None = None
        """Whether the pod has the label. None: not known, as an earlier process of this pod may have led."""
        self._doubted = float("-inf")
        self._changed = asyncio.Event()
        self._written = asyncio.Event()
        self._changed.set()

    def show(self, *, leading: bool) -> None:
        """Record whether this replica leads."""
        self._leading = leading
        if self._shown is not leading:
            self._written.clear()
            self._changed.set()

    def doubt(self) -> None:
        """Write it again: agents take this replica for the leader, and it is not.

        The API server's store may have been set back to a time when this pod had the label.
        """
        now = self._client.clock.monotonic()
        if not self._leading and now >= self._doubted + DOUBT:
            self._doubted = now
            self._shown = None
            self._changed.set()

    async def settled(self, within: float) -> None:
        """Wait until the label matches the state, or for ``within`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._written.wait()

    async def run(self) -> None:
        """Write the label until cancelled."""
        if self._path is None:
            self._written.set()
            return
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._shown is not self._leading:
                leading = self._leading
                self._shown = None  # the answer may be lost after the write
                try:
                    value = "true" if leading else None
                    await self._client.patch_merge(self._path, {"metadata": {"labels": {LEADER_LABEL: value}}})
                except ClusterError as error:
                    log.warning("label_not_written", path=self._path, error=str(error))
                    await asyncio.sleep(error.retry_after)
                else:
                    self._shown = leading
            self._written.set()
