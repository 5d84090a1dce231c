"""The claim: one installation (a release of the chart in a namespace) at most leads in a cluster.

All installations share the CRDs and their objects. Two leaders would end each other's terms in turn, because each
finds the other's epoch. An installation's own Lease (`elector`) chooses between its replicas only. So a replica first
takes one more Lease, with one name in a namespace that all installations share, and renews it while it leads. The
fence still protects the records: the claim keeps the peace, it is no lock for writes.

The claim outlives a leader by `ABSENT` seconds, so that a restart of the only replica does not hand the cluster to the
other installation. To hand it over at once, delete the Lease.

While an installation is uninstalled, the claim has a mark, and no replica leads (`Claim.leave`). A replica that starts
later belongs to a new installation of the same name, and takes the claim at once.
"""

from dataclasses import dataclass
from typing import Final

import structlog

from punctual import errors
from punctual.kube.api.resources import LEASES
from punctual.kube.cluster.client import ApiClient, Json
from punctual.notation.duration import format_micro_time, parse_time

NAME: Final = "punctual.dev"
"""Name of the Lease."""
SHARED: Final = "kube-system"
"""Its namespace, by default: it is in every cluster, and tenants may not write there."""
ABSENT: Final = 60.0
"""Seconds without a renewal after which another installation may lead."""
RENEWED: Final = 10.0
"""Seconds between two renewals."""
LEAVING: Final = "/leaving"
"""End of the holder's name while the installation is uninstalled."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Installation:
    """A release of the chart. ``shared``: the namespace of the claim."""

    namespace: str
    release: str
    shared: str = SHARED

    def __str__(self) -> str:
        """Return "namespace/release"."""
        return f"{self.namespace}/{self.release}"


class Claim:
    """An installation's claim, in the loop of its elector. ``other``: the installation that has it instead, or ""."""

    def __init__(self, client: ApiClient, installation: Installation) -> None:
        self._client = client
        self._own = str(installation)
        self._meta = {"namespace": installation.shared, "name": NAME}
        self.path = LEASES.path(namespace=installation.shared, name=NAME)
        self._collection = LEASES.path(namespace=installation.shared)
        self._monotonic = client.clock.monotonic
        self._began = self._monotonic()
        self._seen: Json = {}  # its spec, and since when it is known
        self._seen_at = self._renewed = float("-inf")
        self.other = ""

    async def hold(self) -> bool:
        """Take the claim, or renew it if that is due. Returns False while another installation has it.

        Raises ClusterError if it can be neither read nor written.
        """
        if self._monotonic() < self._renewed + RENEWED:
            return True
        sent = self._monotonic()
        if not await self._take(self._own):
            return False
        self._renewed = sent
        return True

    async def leave(self) -> bool:
        """Mark the claim, so that no replica of this installation leads. Returns False if another installation has it.

        Raises ClusterError as `hold` does.
        """
        return await self._take(f"{self._own}{LEAVING}")

    async def _take(self, holder: str) -> bool:
        try:
            lease: Json | None = await self._client.get(self.path)
        except errors.NotFound:
            lease = None
        self._see(lease, holder)
        if self.other:
            return False
        if lease is None:
            body = {"apiVersion": LEASES.version, "kind": "Lease", "metadata": self._meta, "spec": self._spec(holder)}
            await self._client.create(self._collection, body)
        else:
            await self._client.replace(self.path, {**lease, "spec": self._spec(holder)})
        return True

    def _see(self, lease: Json | None, mine: str) -> None:
        """Judge by when this replica saw the last renewal. Another clock's time is not used."""
        spec = (lease or {}).get("spec") or {}
        if spec != self._seen:
            self._seen, self._seen_at = spec, self._monotonic()
        holder = spec.get("holderIdentity") or self._own
        left = self._seen_at + float(spec.get("leaseDurationSeconds") or ABSENT) - self._monotonic()
        other = "" if holder in {self._own, mine} or left <= 0 or self._left_before(spec) else holder
        if other and other != self.other:
            log.error("another_installation_leads", installation=other, claim=self.path, message=describe(other))
        self.other = other

    def _left_before(self, spec: Json) -> bool:
        """Return whether this installation was uninstalled before this process began, on the API server's clock."""
        if spec.get("holderIdentity") != f"{self._own}{LEAVING}":
            return False
        try:
            marked = parse_time(spec.get("renewTime") or "")
        except ValueError:
            return False
        return marked < self._client.clock.now() - (self._monotonic() - self._began)

    def _spec(self, holder: str) -> Json:
        now = format_micro_time(self._client.clock.now())
        return {"holderIdentity": holder, "leaseDurationSeconds": int(ABSENT), "renewTime": now}


def describe(installation: str) -> str:
    """Return a sentence about the installation that leads instead of this one."""
    namespace, _, release = installation.removesuffix(LEAVING).partition("/")
    if installation.endswith(LEAVING):
        return f"the release {release} in namespace {namespace} is being uninstalled; this one leads after a minute"
    return (
        f"the release {release} in namespace {namespace} leads in this cluster; this one waits until that is "
        "uninstalled, because both would decide about the same objects: uninstall one of the two"
    )
