"""What chunks cost, in a term: into the Profiles' statuses, and into the speeds of the nodes' classes.

`punctual.kube.learning.profiles` computes; this part passes on the measurements and submits what is due.
"""

from collections.abc import Callable

from punctual.control.cost_estimation import Timed
from punctual.kube.cluster.directory import Directory
from punctual.kube.cluster.nodes import Inventory
from punctual.kube.learning.profiles import ProfileLearning, Where
from punctual.kube.writes.keys import ProfileKey
from punctual.kube.writes.writer import Writer
from punctual.scheduling.model.actions import Measured


class Profiles:
    """All profiles of the directory, for one term. ``rewrite(pool)`` writes a pool's status again."""

    def __init__(
        self,
        directory: Directory,
        inventory: Inventory,
        learning: ProfileLearning,
        writer: Writer,
        *,
        now: Callable[[], float],
        rewrite: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._inventory = inventory
        self._learning = learning
        self._writer = writer
        self._now = now
        self._rewrite = rewrite

    def measured(self, pool: str, measured: Measured) -> None:
        """Take in the measured costs of a chunk, if its job names a profile."""
        known = self._directory.jobs.get(measured.job)
        if known and known.profile:
            where = Where(pool, self._inventory.class_of(measured.node))
            timed = Timed(measured.units, measured.seconds)
            owner, response = known.owner, measured.response
            self._learning.add(owner.namespace, known.profile, where, timed, measured.fetched, response=response)

    def write(self, *, last: bool = False) -> None:
        """Submit the statuses that are due; ``last``: all that was learned."""
        for uid, write in self._learning.due(self._now(), last=last):
            self._writer.submit(ProfileKey(uid), write)

    def apply_speeds(self) -> None:
        """Give the speeds of the nodes' classes to the inventory, and to the pools' statuses with their origin."""
        self._learning.forget_gone()
        for name, known in self._directory.pools.items():
            classes = self._learning.classes(name)
            self._inventory.observe_speeds(name, {c: found.slow for c, found in classes.items() if found.slow != 1.0})
            if known.term.classes != classes:
                known.term.classes = classes
                self._rewrite(name)
