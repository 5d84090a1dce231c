"""What chunks cost, in a term: into the Profiles' statuses, and into the speeds of the nodes' classes.

`punctual.profiles` estimates; this kind passes on the measurements and submits what is due. The samples themselves
stand in the Profile's status, a bounded number of them, so that a new leader goes on from there; they are written some
time after they were seen, and never where nothing was. What a leader has seen in the seconds before it was killed is
lost: it is evidence, not an account.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from punctual.control.cost_estimation import Timed
from punctual.errors import UserError
from punctual.kube import api
from punctual.kube.actors.actors import PoolActors
from punctual.kube.actors.tools import Tools
from punctual.kube.api.conditions import TransitionTimes, conditions, transition_times
from punctual.kube.api.resources import PROFILES
from punctual.kube.cluster.client import Json
from punctual.kube.kinds.profiles.records import profile_status, restore
from punctual.kube.known.profiles import KnownProfile
from punctual.kube.known.store import metadata_of
from punctual.kube.known.translate import to_by_hand
from punctual.kube.takeover.kind import Kind
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import PutStatus
from punctual.profiles.samples import Samples, Where
from punctual.scheduling.model.actions import Measured

PAUSE: Final = 30.0
"""Seconds between two writes about one profile."""


@dataclass(slots=True)
class _Profile:
    """What one has learned, and what its status says of it."""

    samples: Samples = field(default_factory=Samples)
    changed: bool = False
    written: float = -math.inf
    observed: int = 0
    """The generation of the spec that its status tells of."""
    transition_times: TransitionTimes = field(default_factory=dict)


class Profiles(Kind[KnownProfile]):
    """All profiles."""

    carries_out = (Measured,)
    stamped = False  # their status carries no promise

    def __init__(self, tools: Tools, actors: PoolActors) -> None:
        super().__init__(tools.directory.profiles, tools.recorder)
        self._tools = tools
        self._learning = tools.learning
        self._actors = actors
        self._profiles: dict[str, _Profile] = {}  # by uid

    async def restore(self, body: Json, unwritable: str) -> None:
        """Read what was learned."""
        if (known := self.taken(body, unwritable)) is None:
            return
        self._profiles.pop(known.uid, None)
        made = self._profile(known)
        try:
            status = api.parse_status(api.ProfileStatus, body)
        except UserError as error:
            self._tools.directory.unreadable("Profile", f"{known.namespace}/{known.name}", error.message)
            return
        if status is not None:
            made.observed = status.observed_generation or 0
            made.transition_times = transition_times(c.manifest() for c in status.conditions)
            restore(made.samples, status)

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
        directory = self._tools.directory
        job = directory.jobs.get(action.job)
        if job and (known := directory.profiles.named(job.profile, job.namespace)):
            where = Where(pool, self._tools.caches.inventory.class_of(action.node))
            profile = self._profile(known)
            profile.samples.add(where, Timed(action.units, action.seconds), action.fetched, action.response)
            profile.changed = True
            self._learning.changed(pool)

    def tend(self) -> tuple[()]:
        """Submit the statuses that are due, and compare the classes of nodes."""
        self._write()
        self._apply_speeds()
        return ()

    def retire(self) -> None:
        """Submit all that was learned."""
        self._write(last=True)

    def _profile(self, known: KnownProfile) -> _Profile:
        if (profile := self._profiles.get(known.uid)) is None:
            profile = self._profiles[known.uid] = _Profile()
            self._learning.begin((known.namespace, known.name), profile.samples)
        return profile

    def _write(self, *, last: bool = False) -> None:
        """Write what is due; ``last``: all that was learned, and no more."""
        now = self._tools.now()
        for known in self.store.values():
            profile, generation = self._profile(known), known.generation
            learned = profile.changed and (last or now >= profile.written + PAUSE)
            if not learned and (last or profile.observed == generation):
                continue
            profile.changed, profile.written, profile.observed = False, now, generation
            by_hand = to_by_hand(known.spec)
            ready = {"Ready": profile.samples.ready(by_hand)}
            made = conditions(ready, profile.transition_times, now=now, generation=generation)
            profile.transition_times = transition_times(made)
            status = profile_status(profile.samples, by_hand).manifest()
            status |= {"conditions": made, "observedGeneration": generation}
            write = PutStatus.of(PROFILES, "Profile", metadata_of(known), status, urgent=False)
            self._tools.writer.submit(Key(PROFILES, known.uid), write)

    def _apply_speeds(self) -> None:
        """Give the speeds of the nodes' classes to the inventory, and to the pools' statuses with their origin."""
        self._profiles = {uid: profile for uid, profile in self._profiles.items() if uid in self.store}
        self._learning.keep({(self.store[uid].namespace, self.store[uid].name) for uid in self._profiles})
        for known in self._tools.directory.pools.values():
            classes = self._learning.classes(known.name)
            slow = {name: found.slow for name, found in classes.items() if found.slow != 1.0}
            self._tools.caches.inventory.observe_speeds(known.name, slow)
            if known.term.classes != classes:
                known.term.classes = classes
                self._actors.rewrite(known.name)
