"""Keeps the operator's authority and its own serving certificate current, beside other replicas that do the same.

The Secret is the truth; whoever sees a step due takes it, and a write that somebody else was faster with (409) means:
read again. The serving certificate is exchanged inside the running TLS context: connections that stand go on, new ones
get the new certificate. Called once a minute by the runtime (:meth:`Rotation.run`); decides nothing but what
:func:`punctual.kube.trust.ca.advance` says.
"""

import asyncio
import ssl
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from punctual.errors import ClusterError
from punctual.kube.trust.ca import Lifetimes, Signed, Trust, advance, make_serving, new_trust

log = structlog.get_logger(__name__)

ROUNDS = 5  # two replicas settle in two


class CaStore(Protocol):
    """Where the authority is kept (a Secret) and published (a ConfigMap). Errors are ClusterError."""

    async def read(self) -> tuple[dict[str, str], str] | None:
        """Return the Secret's content and its version; None where there is none."""

    async def write(self, data: dict[str, str], *, version: str | None) -> bool:
        """Create (version None) or replace that version of the Secret; False: somebody was faster."""

    async def published(self) -> str | None:
        """Return the certificates that agents are given now."""

    async def publish(self, bundle: str) -> None:
        """Give agents these certificates."""


class Rotation:
    """One replica's view of the authority. ``context`` is for the server that agents report to."""

    def __init__(
        self,
        vault: CaStore,
        names: Sequence[str],
        now: Callable[[], float],
        *,
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self._vault = vault
        self._names = tuple(names)
        self._now = now
        self._lifetimes = lifetimes or Lifetimes()
        self._trust: Trust | None = None
        self._serving: Signed | None = None
        self._signer: Signed | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3

    @property
    def serving(self) -> Signed | None:
        """The serving certificate in use; None before the first :meth:`tend`."""
        return self._serving

    @property
    def trust(self) -> Trust | None:
        """The authority as last read or written."""
        return self._trust

    async def tend(self) -> None:
        """Look once, do what is due. Raises ClusterError where the API server does not let us."""
        trust = await self._settle()
        if await self._vault.published() != trust.bundle:
            await self._vault.publish(trust.bundle)
        now = self._now()
        if self._serving is None or self._serving.due(now) or self._signer != trust.signing:
            self._serving = make_serving(trust.signing, self._names, now, lifetimes=self._lifetimes)
            self._signer = trust.signing
            self._load(self._serving)
            log.info("certificate_issued", until=round(self._serving.end))

    async def run(self, *, every: float = 60.0) -> None:
        """Tend until cancelled; what fails is tried again next time."""
        while True:
            await asyncio.sleep(every)
            try:
                await self.tend()
            except ClusterError as error:
                log.warning("authority_not_tended", error=str(error))

    async def _settle(self) -> Trust:
        for _ in range(ROUNDS):
            held = await self._vault.read()
            found = _parse(held[0]) if held else None
            version = held[1] if held else None
            # a Secret that is gone or spoilt is put back from memory: agents go on trusting
            trust = found or self._trust or new_trust(self._now(), lifetimes=self._lifetimes)
            seen = await self._vault.published()
            wanted = advance(trust, self._now(), seen=seen, lifetimes=self._lifetimes)
            if wanted == found:
                self._trust = found
                return found
            if await self._vault.write(wanted.to_data(), version=version):
                log.info("authority_written", coming=wanted.coming is not None, retired=len(wanted.retired))
                self._trust = wanted
                return wanted
        raise ClusterError("the authority's Secret changes faster than it can be read")

    def _load(self, serving: Signed) -> None:
        """Put the certificate into the context. The ssl module reads files only; they are gone when it has."""
        with tempfile.TemporaryDirectory(prefix="punctual-") as folder:
            path = Path(folder, "tls.pem")
            path.touch(mode=0o600)
            path.write_text(serving.key + serving.certificate)
            self.context.load_cert_chain(path)


def _parse(data: dict[str, str]) -> Trust | None:
    if not data:  # as the chart makes it, so that the operator may replace this Secret but create none
        return None
    try:
        return Trust.from_data(data)
    except (ValueError, KeyError) as error:
        log.warning("authority_unreadable", error=str(error))
        return None
