"""The stores of all kinds, and the highest epoch that any status carries."""

from typing import Any

from punctual.kube.known.jobs import JobStore
from punctual.kube.known.pools import PoolStore
from punctual.kube.known.profiles import ProfileStore
from punctual.kube.known.rates import RateStore
from punctual.kube.known.reservations import ReservationStore
from punctual.kube.known.store import HIGHEST, Store, StoreListener


class Directory(StoreListener):
    """What a replica knows of Punctual's kinds. ``listener`` is told of epochs that rise, and of all else in stores."""

    def __init__(self, listener: StoreListener | None = None) -> None:
        self.listener = listener or StoreListener()
        self.pools = PoolStore(self)
        self.jobs = JobStore(self)
        self.profiles = ProfileStore(self)
        self.reservations = ReservationStore(self)
        self.rates = RateStore(self)
        self.stores: tuple[Store[Any], ...] = (self.pools, self.jobs, self.profiles, self.reservations, self.rates)
        self.epoch = 0
        """The highest epoch that any status carries. Only leaders may write those; an annotation of a pod says
        nothing."""

    def store_of(self, plural: str) -> Store[Any]:
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
            self.listener.see_epoch(epoch)

    def unreadable(self, kind: str, name: str, why: str) -> None:
        """Take in that the models refuse an object."""
        self.listener.unreadable(kind, name, why)

    def job_is_new(self, uid: str) -> None:
        """Take in that a job was not known."""
        self.listener.job_is_new(uid)

    def job_is_unsettled(self, uid: str) -> None:
        """Take in that a job was settled when it was last seen, and is no longer."""
        self.listener.job_is_unsettled(uid)
