"""The reservations of a term: read before anything is decided about them, then given to the windows' controller.

`windows` decides when a window is requested. This part decides only whether a reservation may be considered at all: its
status was read after the stamp, and its pool is led.

The takeover puts refused reservations aside, as it does settled jobs (`settled_jobs`). They are stamped and read one by
one after it, whatever changes about them. What an earlier leader still books for one before that stamp is read and kept
then.
"""

from collections.abc import Awaitable, Callable

from punctual.kube.cluster.client import Json
from punctual.kube.cluster.directory import Directory, KnownReservation, holds_nothing
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
        caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._directory = directory
        self._statuses = statuses
        self._windows = windows
        self._late = late
        self._actors = actors
        self._leads = leads
        self._spawn = spawn
        self._caught_up = caught_up
        self._aside: set[str] = set()  # uids

    def put_aside(self, uid: str, body: Json | None) -> bool:
        """Put a reservation aside if it is refused; also one that is gone."""
        if uid in self._statuses.gone:
            return True
        if body is None or not holds_nothing(body):
            return False
        self._directory.observe_reservation(body)
        self._aside.add(uid)
        return True

    def begin(self) -> None:
        """Consider all reservations: the takeover is done."""
        for known in list(self._directory.reservations.values()):
            self._consider(known)

    async def run(self) -> None:
        """Read, one by one, the reservations that were put aside. Decisions are written first."""
        while self._aside:
            await self._caught_up()
            if known := self._directory.reservations.get(self._aside.pop()):
                await self._read_late(known)

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
            if known.metadata.namespace == namespace and known.term.refusal:
                self._consider(known)

    def _consider(self, known: KnownReservation) -> None:
        statuses = self._statuses
        if not self._leads() or known.uid in statuses.left_alone or known.pool in statuses.unstamped:
            return
        if known.uid in statuses.read:
            self._windows.consider(known)
        elif known.uid not in self._aside and not self._late.reads(known.uid):
            self._spawn(self._read_late(known))

    async def _read_late(self, known: KnownReservation) -> None:
        if not await self._late.reservation(known):
            return
        for event in self._windows.of_pool(known.pool):
            self._actors.tell(known.pool, event)  # a window that the pool holds already changes nothing
        self._consider(known)
        self._windows.reconsider_jobs(known)
