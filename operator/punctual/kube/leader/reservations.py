"""The reservations of a term: read before anything is decided about them, then given to the windows' controller.

`windows` decides when a window is requested. This part decides only whether a reservation may be considered at all: its
status was read after the stamp, and its pool is led.
"""

from collections.abc import Callable

from punctual.kube.cluster.directory import Directory, KnownReservation
from punctual.kube.leader.actors import PoolActors, Spawn
from punctual.kube.takeover.late import LateReader
from punctual.kube.takeover.statuses import Statuses
from punctual.kube.windows.controller import WindowController


class Reservations:
    """All reservations of the directory. ``leads()`` returns whether anything is decided yet, or still."""

    def __init__(
        self,
        directory: Directory,
        statuses: Statuses,
        windows: WindowController,
        late: LateReader,
        actors: PoolActors,
        *,
        leads: Callable[[], bool],
        spawn: Spawn,
    ) -> None:
        self._directory = directory
        self._statuses = statuses
        self._windows = windows
        self._late = late
        self._actors = actors
        self._leads = leads
        self._spawn = spawn

    def begin(self) -> None:
        """Consider all reservations: the takeover is done."""
        for known in list(self._directory.reservations.values()):
            self._consider(known)

    def changed(self, known: KnownReservation) -> None:
        """Take in that a reservation is new or being deleted."""
        self._statuses.left_alone.discard(known.uid)
        self._consider(known)

    def gone(self, known: KnownReservation) -> None:
        """Take in that a reservation is gone."""
        self._statuses.gone.add(known.uid)
        self._statuses.read.discard(known.uid)
        self._windows.drop(known)

    def pool_changed(self, pool: str) -> None:
        """Consider the reservations of a pool that started, changed or is gone."""
        for known in list(self._directory.reservations.values()):
            if known.pool == pool:
                self._consider(known)

    def namespace_changed(self, namespace: str) -> None:
        """Consider the refused reservations of a namespace, because its labels changed."""
        for known in list(self._directory.reservations.values()):
            if known.metadata.namespace == namespace and known.refusal:
                self._consider(known)

    def _consider(self, known: KnownReservation) -> None:
        statuses = self._statuses
        if not self._leads() or known.uid in statuses.left_alone or known.pool in statuses.unstamped:
            return
        if known.uid in statuses.read:
            self._windows.consider(known)
        elif not self._late.reads(known.uid):
            self._spawn(self._read_late(known))

    async def _read_late(self, known: KnownReservation) -> None:
        if not await self._late.reservation(known):
            return
        for event in self._windows.of_pool(known.pool):
            self._actors.tell(known.pool, event)  # a window that the pool holds already changes nothing
        self._consider(known)
