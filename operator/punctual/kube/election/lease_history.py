"""What the Lease has said: from it the elector knows that the API server's store was set back.

Each renewal writes the Lease, so no other object tells it sooner. Three things show it. Its resource version is lower.
Its epoch is lower. Or an epoch has another holder than before, although each acquisition has an epoch of its own. The
last two show it also to a replica that stood still until the restored store had come as far again.
"""

from punctual.errors import StoreFellBack
from punctual.kube.cluster.client import Json
from punctual.kube.known.revision import check, number


class LeaseHistory:
    """The newest state of the Lease that this process knows."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._version = ""
        self._epoch = 0
        self._holder = ""

    def note(self, lease: Json) -> None:
        """Take in a Lease from a watch. An older one, of an API server that lags behind, changes nothing."""
        version, epoch, holder = _said(lease)
        if epoch < self._epoch or number(version) < number(self._version):
            return
        if epoch > self._epoch or not self._holder:
            self._holder = holder
        self._epoch = epoch
        self._version = version

    def check(self, lease: Json) -> None:
        """Take in a Lease from a consistent read, or from the answer to an own write. Raises StoreFellBack."""
        version, epoch, holder = _said(lease)
        check(self._what, self._version, version)
        if epoch < self._epoch:
            raise StoreFellBack(f"{self._what} has epoch {epoch}, and had {self._epoch} before: the store was set back")
        if epoch == self._epoch and holder and self._holder and holder != self._holder:
            raise StoreFellBack(
                f"{self._what} names {holder} for epoch {epoch}, which {self._holder} had: the store was set back"
            )
        self.note(lease)


def _said(lease: Json) -> tuple[str, int, str]:
    """Return a Lease's resource version, epoch and holder."""
    spec = lease.get("spec") or {}
    version = lease["metadata"].get("resourceVersion", "")
    return version, spec.get("leaseTransitions") or 0, spec.get("holderIdentity") or ""
