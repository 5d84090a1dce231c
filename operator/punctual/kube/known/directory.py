"""The stores of all kinds, and the highest epoch that any status carries."""

from collections.abc import Callable
from typing import Any

from punctual.kube.known.jobs import Jobs
from punctual.kube.known.pools import Pools
from punctual.kube.known.profiles import Profiles
from punctual.kube.known.rates import Rates
from punctual.kube.known.reservations import Reservations
from punctual.kube.known.store import HIGHEST, Store


class Directory:
    """What a replica knows of Punctual's kinds."""

    def __init__(self) -> None:
        self.pools = Pools(self.see_epoch, self._unreadable)
        self.jobs = Jobs(self.see_epoch)
        self.profiles = Profiles(self.see_epoch, self._unreadable)
        self.reservations = Reservations(self.see_epoch)
        self.rates = Rates(self.see_epoch)
        self.stores: tuple[Store[Any], ...] = (self.pools, self.jobs, self.profiles, self.reservations, self.rates)
        self.epoch = 0
        """The highest epoch that any status carries. Only leaders may write those; an annotation of a pod says
        nothing."""
        self.on_epoch: Callable[[int], None] = lambda _: None
        """Hears when that rises."""
        self.on_unreadable: Callable[[str, str, str], None] = lambda _kind, _name, _why: None
        """Called with kind, name and reason for each pool and profile that the models refuse."""

    def of(self, plural: str) -> Store[Any]:
        """Return the store of a kind."""
        return next(store for store in self.stores if store.resource.plural == plural)

    def forget_term(self) -> None:
        """Forget what a term has read or decided. What watches said stays."""
        for store in self.stores:
            store.forget_term()

    def see_epoch(self, epoch: int) -> None:
        """Take in an epoch that stands in a status; ignore one that no leader reaches."""
        if self.epoch < epoch <= HIGHEST:
            self.epoch = epoch
            self.on_epoch(epoch)

    def _unreadable(self, kind: str, name: str, why: str) -> None:
        self.on_unreadable(kind, name, why)
