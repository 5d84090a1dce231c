"""What chunks cost, in a term: into the Profiles' statuses, and into the speeds of the nodes' classes.

`punctual.profiles` estimates; this kind passes on the measurements and submits what is due.
"""

from punctual.control.cost_estimation import Timed
from punctual.kube.actors.actors import PoolActors
from punctual.kube.actors.tools import Tools
from punctual.kube.api.resources import PROFILES
from punctual.kube.cluster.client import Json
from punctual.kube.known.profiles import KnownProfile
from punctual.kube.takeover.kind import Kind
from punctual.kube.writes.keys import Key
from punctual.profiles.samples import Where
from punctual.scheduling.model.actions import Measured


class Profiles(Kind[KnownProfile]):
    """All profiles."""

    carries_out = (Measured,)
    stamped = False  # their status carries no promise

    def __init__(self, tools: Tools, actors: PoolActors) -> None:
        super().__init__(tools.directory.profiles, tools.recorder)
        self._tools = tools
        self._learning = tools.learning
        self._actors = actors

    async def restore(self, body: Json, unwritable: str) -> None:
        """Read what was learned."""
        self.taken(body, unwritable)
        self._learning.load(body)

    def begin(self) -> tuple[()]:
        """Give the nodes' speeds to the inventory before a pool starts."""
        self._apply_speeds()
        return ()

    def must_read(self, known: KnownProfile) -> bool:
        """Return False: nothing is decided about a profile."""
        return False

    def consider(self, known: KnownProfile) -> None:
        """Tell the jobs that name a profile."""
        self._tools.kinds.signal("profile", f"{known.namespace}/{known.name}")

    def carry_out(self, pool: str, action: Measured) -> None:
        """Take in the measured costs of a chunk, if its job names a profile."""
        known = self._tools.directory.jobs.get(action.job)
        if known and known.profile:
            where = Where(pool, self._tools.caches.inventory.class_of(action.node))
            timed = Timed(action.units, action.seconds)
            self._learning.add(known.namespace, known.profile, where, timed, action.fetched, response=action.response)

    def tend(self) -> tuple[()]:
        """Submit the statuses that are due, and compare the classes of nodes."""
        self._write()
        self._apply_speeds()
        return ()

    def retire(self) -> None:
        """Submit all that was learned."""
        self._write(last=True)

    def _write(self, *, last: bool = False) -> None:
        for uid, write in self._learning.due(self._tools.now(), last=last):
            self._tools.writer.submit(Key(PROFILES, uid), write)

    def _apply_speeds(self) -> None:
        """Give the speeds of the nodes' classes to the inventory, and to the pools' statuses with their origin."""
        self._learning.forget_gone()
        for known in self._tools.directory.pools.values():
            classes = self._learning.learned.classes(known.name)
            slow = {name: found.slow for name, found in classes.items() if found.slow != 1.0}
            self._tools.caches.inventory.observe_speeds(known.name, slow)
            if known.term.classes != classes:
                known.term.classes = classes
                self._actors.rewrite(known.name)
