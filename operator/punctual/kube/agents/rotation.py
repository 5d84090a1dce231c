"""Keeps the operator's authority and this replica's serving certificate current.

The Secret is the source of truth. Any replica that finds a step due takes it. A conflict (409) means that another
replica wrote first, so the Secret is read again. The serving certificate is replaced inside the running TLS context:
open connections continue, and new ones get the new certificate. :meth:`Rotation.run` works once a minute. The steps are
decided by :func:`punctual.kube.agents.ca.advance` alone.
"""

import asyncio
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import structlog

from punctual.errors import ClusterError
from punctual.kube.agents.ca import Lifetimes, Signed, Trust, advance, make_serving, new_trust
from punctual.runtime.clock import ServerClock

log = structlog.get_logger(__name__)

ROUNDS = 5  # two replicas settle in two


class CaStore(Protocol):
    """Stores the authority (in a Secret) and publishes it (in a ConfigMap). Errors are ClusterError."""

    async def read(self) -> tuple[dict[str, str], str] | None:
        """Return the Secret's content and its version, or None if it does not exist."""

    async def write(self, data: dict[str, str], *, version: str | None) -> bool:
        """Create the Secret (version None) or replace that version of it.

        Returns False if another replica wrote first.
        """

    async def published(self) -> str | None:
        """Return the certificates that agents get now."""

    async def publish(self, bundle: str) -> None:
        """Publish these certificates to agents."""


class Rotation:
    """One replica's view of the authority. ``context`` is the TLS context of the report server."""

    def __init__(
        self,
        store: CaStore,
        names: Sequence[str],
        clock: ServerClock,
        *,
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self._store = store
        self._names = tuple(names)
        self._now = clock.now
        self._lifetimes = lifetimes or Lifetimes()
        self._trust: Trust | None = None
        self._serving: Signed | None = None
        self._signer: Signed | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3

    @property
    def serving(self) -> Signed | None:
        """The serving certificate in use. None before the first :meth:`tend`."""
        return self._serving

    @property
    def trust(self) -> Trust | None:
        """The authority as last read or written."""
        return self._trust

    async def tend(self) -> None:
        """Read the authority and take the step that is due. Raises ClusterError if the API server fails or refuses."""
        trust = await self._settle()
        if await self._store.published() != trust.bundle:
            await self._store.publish(trust.bundle)
        now = self._now()
        if self._serving is None or self._serving.due(now) or self._signer != trust.signing:
            self._serving = make_serving(trust.signing, self._names, now, lifetimes=self._lifetimes)
            self._signer = trust.signing
            self._load(self._serving)
            log.info("certificate_issued", until=round(self._serving.end))

    async def run(self, *, every: float = 60.0) -> None:
        """Call :meth:`tend` until cancelled. A failure is tried again next time."""
        while True:
            await asyncio.sleep(every)
            try:
                await self.tend()
            except ClusterError as error:
                log.warning("authority_not_renewed", error=str(error))

    async def _settle(self) -> Trust:
        for _ in range(ROUNDS):
            held = await self._store.read()
            found = _parse(held[0]) if held else None
            version = held[1] if held else None
            # a deleted or damaged Secret is restored from memory, so that agents continue to trust the operator
            trust = found or self._trust or new_trust(self._now(), lifetimes=self._lifetimes)
            seen = await self._store.published()
            wanted = advance(trust, self._now(), seen=seen, lifetimes=self._lifetimes)
            if wanted == found:
                self._trust = found
                return found
            if await self._store.write(wanted.to_data(), version=version):
                log.info("authority_written", coming=wanted.coming is not None, retired=len(wanted.retired))
                self._trust = wanted
                return wanted
        raise ClusterError("the authority's Secret changed during each of its reads")

    def _load(self, serving: Signed) -> None:
        """Load the certificate into the TLS context.

        The ssl module reads files only. They are deleted afterwards.
        """
        with tempfile.TemporaryDirectory(prefix="punctual-") as folder:
            path = Path(folder, "tls.pem")
            path.touch(mode=0o600)
            path.write_text(serving.key + serving.certificate)
            self.context.load_cert_chain(path)


def _parse(data: dict[str, str]) -> Trust | None:
    if not data:  # the chart creates it empty: replacing is allowed, creating is not
        return None
    try:
        return Trust.from_data(data)
    except (ValueError, KeyError) as error:
        log.warning("authority_rejected", error=str(error))
        return None
