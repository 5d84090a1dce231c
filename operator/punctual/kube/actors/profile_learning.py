"""What profiles have learned, between their statuses and `punctual.profiles`, which decides what follows from it.

For one term of a leader. The samples themselves stand in the Profile's status, a bounded number of them, so that a new
leader goes on from there; they are written some time after they were seen, and never where nothing was. What a leader
has seen in the seconds before it was killed is lost: it is evidence, not an account.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from punctual.control.cost_estimation import Fetched, Timed
from punctual.control.response import Response, middle
from punctual.errors import UserError
from punctual.kube import api
from punctual.kube.api.conditions import TransitionTimes, conditions, transition_times
from punctual.kube.api.resources import PROFILES
from punctual.kube.known.directory import Directory
from punctual.kube.known.profiles import KnownProfile
from punctual.kube.known.store import metadata_of
from punctual.kube.translate import to_by_hand
from punctual.kube.writes.operations import PutStatus
from punctual.profiles.learning import AskedSpeeds, Learning
from punctual.profiles.samples import ByHand, Samples, Where, digits

PAUSE: Final = 30.0
"""Seconds between two writes about one profile."""


@dataclass(slots=True)
class _Profile:
    """What one has learned, and what its status says of it."""

    uid: str
    samples: Samples = field(default_factory=Samples)
    changed: bool = False
    written: float = -math.inf
    observed: int = 0
    """The generation of the spec that its status tells of."""
    transition_times: TransitionTimes = field(default_factory=dict)


class ProfileLearning:
    """What profiles have ``learned``. ``speeds_of``: what a pool's spec says of its nodes' speeds."""

    def __init__(self, directory: Directory, speeds_of: Callable[[str], api.NodeSpeeds]) -> None:
        def asked(pool: str) -> AskedSpeeds:
            speeds = speeds_of(pool)
            return AskedSpeeds(speeds.limit, {c.name: c.unit_time for c in speeds.classes or ()})

        self._directory = directory
        self._profiles: dict[tuple[str, str], _Profile] = {}
        self.learned = Learning(asked)

    def load(self, body: Mapping[str, Any]) -> None:
        """Go on from what stands in a profile's status."""
        meta = body["metadata"]
        made = self._begin((meta["namespace"], meta["name"]), meta["uid"])
        try:
            status = api.parse_status(api.ProfileStatus, body)
        except UserError as error:
            self._directory.unreadable("Profile", f"{meta['namespace']}/{meta['name']}", error.message)
            return
        if status is None:
            return
        made.observed = status.observed_generation or 0
        made.transition_times = transition_times(c.manifest() for c in status.conditions)
        for c in status.classes:
            where, t = Where(c.pool, c.node_class), c.transfers
            made.samples.seen[where] = tuple(map(Timed, c.units, c.seconds))
            if t is not None:
                made.samples.fetched[where] = tuple(map(Fetched, t.units, t.opening, t.seconds))
            if c.responses:
                made.samples.responses[where] = tuple(Response(**dict(r)) for r in c.responses)

    def add(
        self,
        namespace: str,
        name: str,
        where: Where,
        timed: Timed,
        fetched: Fetched | None = None,
        *,
        response: Response | None = None,
    ) -> None:
        """Take in what a chunk of a job took that names the profile; ``fetched``: the part that its input took.

        ``response``: how it answered to CPU, if it has shown that.
        """
        if (there := self._directory.profiles.named(name, namespace)) is None:
            return
        known = self._known(there)
        known.samples.add(where, timed, fetched, response)
        known.changed = True
        self.learned.changed(where.pool)

    def forget_gone(self) -> None:
        """Forget profiles that are gone: what they have measured counts no more."""
        there = {(found.namespace, found.name): uid for uid, found in self._directory.profiles.items()}
        self._profiles = {key: known for key, known in self._profiles.items() if there.get(key) == known.uid}
        self.learned.keep(self._profiles.keys())

    def _known(self, profile: KnownProfile) -> _Profile:
        key = profile.namespace, profile.name
        known = self._profiles.get(key)
        return known if known and known.uid == profile.uid else self._begin(key, profile.uid)

    def _begin(self, key: tuple[str, str], uid: str) -> _Profile:
        made = self._profiles[key] = _Profile(uid)
        self.learned.begin(key, made.samples)
        return made

    def due(self, now: float, *, last: bool = False) -> list[tuple[str, PutStatus]]:
        """Return what is to be written by now, by uid; ``last``: all that was learned, and no more."""
        out = []
        for there in self._directory.profiles.values():
            known, generation = self._known(there), there.generation
            learned = known.changed and (last or now >= known.written + PAUSE)
            if not learned and (last or known.observed == generation):
                continue
            known.changed, known.written, known.observed = False, now, generation
            by_hand = to_by_hand(there.spec)
            status = _status(known.samples, by_hand).manifest()
            ready = {"Ready": known.samples.ready(by_hand)}
            made = conditions(ready, known.transition_times, now=now, generation=generation)
            known.transition_times = transition_times(made)
            status |= {"conditions": made, "observedGeneration": generation}
            meta = metadata_of(there)
            out.append((known.uid, PutStatus.of(PROFILES, "Profile", meta, status, urgent=False)))
        return out


def _status(known: Samples, by_hand: ByHand) -> api.ProfileStatus:
    classes = []
    for where, seen in sorted(known.seen.items()):
        found, transfer = known.work(where, by_hand), known.transfer(where, by_hand)
        fetched = known.fetched.get(where)
        classes.append(
            api.LearnedCost(
                pool=where.pool,
                node_class=where.node_class,
                per_unit=None if found is None else digits(found.chi),
                transfer_per_unit=None if transfer is None else digits(transfer.chi),
                transfer_setup=None if transfer is None else digits(transfer.theta),
                startup=None if found is None else digits(found.theta),
                outliers=None if found is None else found.outliers,
                r2=None if found is None or found.r2 is None else round(found.r2, 4),
                units=[t.units for t in seen],
                seconds=[t.seconds for t in seen],
                transfers=None if fetched is None else _transfers(fetched),
                responses=[_response(r) for r in known.responses.get(where, ())] or None,
            )
        )
    if not classes:
        return api.ProfileStatus()
    best = max(classes, key=lambda c: len(c.units))
    response = middle(known.responses.get(Where(best.pool, best.node_class), ()))
    return api.ProfileStatus(
        per_unit=best.per_unit,
        transfer_per_unit=best.transfer_per_unit,
        transfer_setup=best.transfer_setup,
        startup=best.startup,
        samples=len(best.units),
        r2=best.r2,
        response=None if response is None else _response(response),
        classes=classes,
    )


def _transfers(fetched: Sequence[Fetched]) -> api.LearnedTransfers:
    units, opening, seconds = map(list, zip(*fetched, strict=True))
    return api.LearnedTransfers(units=units, opening=opening, seconds=seconds)


def _response(seen: Response) -> api.LearnedResponse:
    return api.LearnedResponse(**asdict(seen))
