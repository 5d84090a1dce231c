"""Profiles learn: what chunks took, by pool and class of nodes, and what follows for jobs and for the nodes' speeds.

For one term of a leader. The samples themselves stand in the Profile's status, a bounded number of them, so that a new
leader goes on from there; they are written some time after they were seen, and never where nothing was. What a leader
has seen in the seconds before it was killed is lost: it is evidence, not an account.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any, Final, NamedTuple

from punctual import reasons
from punctual.control.cost_estimation import (
    ENOUGH,
    ClassSpeed,
    Estimate,
    Fetched,
    Timed,
    estimate,
    estimate_transfer,
    remember,
    speeds,
)
from punctual.control.response import KEPT as KEPT_RESPONSES
from punctual.control.response import Response, middle
from punctual.errors import UserError
from punctual.kube import api
from punctual.kube.api.conditions import TransitionTimes, conditions, transition_times
from punctual.kube.api.resources import PROFILES
from punctual.kube.known.directory import Directory
from punctual.kube.known.profiles import KnownProfile
from punctual.kube.known.store import metadata_of
from punctual.kube.translate import Estimates, Learned
from punctual.kube.writes.operations import PutStatus
from punctual.scheduling.model.job import Verdict
from punctual.scheduling.model.wording import some

PAUSE: Final = 30.0
"""Seconds between two writes about one profile."""
MOST: Final = 16
"""Pools and classes remembered of one profile."""
TELLING: Final = 0.1
"""Part by which a class must be slower or quicker than was thought to be told: plans are made anew then."""


class Where(NamedTuple):
    """On what kind of processor: the pool's, on nodes of a class."""

    pool: str
    node_class: str


@dataclass(slots=True)
class _Profile:
    """What is known of one."""

    uid: str
    seen: dict[Where, tuple[Timed, ...]] = field(default_factory=dict)
    """What chunks took, the transfers of their inputs taken off."""
    fetched: dict[Where, tuple[Fetched, ...]] = field(default_factory=dict)
    """What these transfers took."""
    responses: dict[Where, tuple[Response, ...]] = field(default_factory=dict)
    """How chunks have answered to CPU."""
    changed: bool = False
    written: float = -math.inf
    observed: int = 0
    """The generation of the spec that its status tells of."""
    transition_times: TransitionTimes = field(default_factory=dict)
    _found: dict[tuple[str, Where, float | None, float | None], Estimate | None] = field(default_factory=dict)

    def add(self, where: Where, timed: Timed, fetched: Fetched | None, response: Response | None) -> None:
        self.seen[where] = remember(self.seen.get(where, ()), timed)
        if fetched is not None:
            self.fetched[where] = remember(self.fetched.get(where, ()), fetched)
        if response is not None:
            self.responses[where] = (*self.responses.get(where, ()), response)[-KEPT_RESPONSES:]
        if len(self.seen) > MOST:
            least = min((w for w in self.seen if w != where), key=lambda w: (len(self.seen[w]), w))
            del self.seen[least]
            self.fetched.pop(least, None)
            self.responses.pop(least, None)
        self.changed = True
        self._found.clear()

    def of_pool(self, pool: str) -> dict[str, Where]:
        """Return where it was seen in a pool, by class."""
        return {where.node_class: where for where in self.seen if where.pool == pool}

    def work(self, where: Where, spec: api.ProfileSpec | None = None) -> Estimate | None:
        """Return what was learned of χ and θcp, beside what is set by hand.

        Where no transfers were seen, those that programs make by themselves are in it.
        """
        chi, theta = (None, None) if spec is None else (spec.per_unit, spec.startup)
        if spec is not None and self.transfer(where) is None:
            chi = None if chi is None else chi + (spec.transfer_per_unit or 0.0)
            theta = None if theta is None else theta + (spec.transfer_setup or 0.0)
        key = ("work", where, chi, theta)
        if key not in self._found:  # it takes a millisecond, and many jobs may ask
            self._found[key] = estimate(self.seen[where], chi=chi, theta=theta)
        return self._found[key]

    def transfer(self, where: Where, spec: api.ProfileSpec | None = None) -> Estimate | None:
        """Return what was learned of τ and θcm, beside what is set by hand; where both are set there is no beside."""
        tau, theta = (
            (None, None) if spec is None or spec.transfer_by_hand else (spec.transfer_per_unit, spec.transfer_setup)
        )
        key = ("transfer", where, tau, theta)
        if key not in self._found:
            self._found[key] = estimate_transfer(self.fetched.get(where, ()), tau=tau, theta=theta)
        return self._found[key]


class ProfileLearning:
    """What profiles have learned; see :meth:`of`. ``speeds_of``: what a pool's spec says of its nodes' speeds."""

    def __init__(self, directory: Directory, speeds_of: Callable[[str], api.NodeSpeeds]) -> None:
        self._directory = directory
        self._profiles: dict[tuple[str, str], _Profile] = {}
        self._speeds_of = speeds_of
        self._classes: dict[str, dict[str, ClassSpeed]] = {}
        # by what pools of which nothing was learned since asked when their classes were compared
        self._compared: dict[str, api.NodeSpeeds] = {}

    def load(self, body: Mapping[str, Any]) -> None:
        """Go on from what stands in a profile's status."""
        meta = body["metadata"]
        made = self._profiles[meta["namespace"], meta["name"]] = _Profile(meta["uid"])
        self._compared.clear()
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
            made.seen[where] = tuple(map(Timed, c.units, c.seconds))
            if t is not None:
                made.fetched[where] = tuple(map(Fetched, t.units, t.opening, t.seconds))
            if c.responses:
                made.responses[where] = tuple(Response(**dict(r)) for r in c.responses)

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
        there = self._directory.profiles.named(name, namespace)
        if there is None:
            return
        known = self._known(there)
        seconds = timed.seconds - (fetched.seconds if fetched else 0.0)
        if fetched:
            fetched = Fetched(fetched.units, round(fetched.opening, 3), _millis(fetched.seconds))
        if response:
            response = Response(*map(_digits, astuple(response)))
        known.add(where, Timed(timed.units, _millis(seconds)), fetched, response)
        self._compared.pop(where.pool, None)

    def of(self, namespace: str, name: str, pool: str) -> Learned:
        """Return what a job in this pool is planned with, beside what is set by hand: on the pool's quickest class."""

        def learned(spec: api.ProfileSpec) -> Estimates | None:
            known = self._profiles.get((namespace, name))
            classes = known.of_pool(pool) if known else {}
            if known is None or not classes:
                return None
            most = max(sorted(classes), key=lambda name: len(known.seen[classes[name]]))
            found = known.work(classes[most], spec)
            if found is None:
                return None
            work = replace(found, chi=self._chi_on_quickest(known, classes, most, spec))
            most = max(sorted(classes), key=lambda name: len(known.fetched.get(classes[name], ())))
            transfer = known.transfer(classes[most], spec)
            most = max(sorted(classes), key=lambda name: len(known.responses.get(classes[name], ())))
            response = middle(known.responses.get(classes[most], ()))
            if response is not None:
                response = response.slower(1.0 / self._slow(pool, most))
            return Estimates(work, transfer, response)

        return learned

    def classes(self, pool: str) -> dict[str, ClassSpeed]:
        """Return how long a unit takes on each class of a pool's nodes, where on the quickest it takes 1."""
        told, asked = self._classes.get(pool, {}), self._speeds_of(pool)
        if self._compared.get(pool) != asked:
            self._compared[pool] = asked
            tenants: dict[str, list[dict[str, Estimate]]] = {}
            for (namespace, _), known in self._profiles.items():
                found = {name: e for name, where in known.of_pool(pool).items() if (e := known.work(where))}
                tenants.setdefault(namespace, []).append(found)
            given = {c.name: c.unit_time for c in asked.classes or ()}
            compared = speeds(tenants, limit=asked.limit, given=given)
            told = self._classes[pool] = {
                name: now if name in given else _steady(told.get(name), now) for name, now in compared.items()
            }
        return told

    def _slow(self, pool: str, node_class: str) -> float:
        found = self.classes(pool).get(node_class)
        return 1.0 if found is None else found.slow

    def _chi_on_quickest(
        self, known: _Profile, classes: Mapping[str, Where], most: str, spec: api.ProfileSpec
    ) -> float:
        """Return χ on the pool's quickest class, by the class that most is known of.

        A class that is slower than the pool takes it to be counts as well: a chunk there must not take longer than
        planned.
        """
        told = self.classes(classes[most].pool)
        limited = [name for name in classes if name in told and told[name].slow < (told[name].measured or 0.0)]
        found = ((name, known.work(classes[name], spec)) for name in {most, *limited})
        return max(e.chi / self._slow(classes[name].pool, name) for name, e in found if e is not None)

    def forget_gone(self) -> None:
        """Forget profiles that are gone: what they have measured counts no more."""
        there = {(found.namespace, found.name): uid for uid, found in self._directory.profiles.items()}
        for key in [key for key, known in self._profiles.items() if there.get(key) != known.uid]:
            del self._profiles[key]
            self._compared.clear()

    def _known(self, profile: KnownProfile) -> _Profile:
        key = profile.namespace, profile.name
        known = self._profiles.get(key)
        if known is None or known.uid != profile.uid:
            known = self._profiles[key] = _Profile(profile.uid)
        return known

    def due(self, now: float, *, last: bool = False) -> list[tuple[str, PutStatus]]:
        """Return what is to be written by now, by uid; ``last``: all that was learned, and no more."""
        out = []
        for there in self._directory.profiles.values():
            known, generation = self._known(there), there.generation
            learned = known.changed and (last or now >= known.written + PAUSE)
            if not learned and (last or known.observed == generation):
                continue
            known.changed, known.written, known.observed = False, now, generation
            status = _status(known, there.spec).manifest()
            made = conditions(
                {"Ready": _ready(known, there.spec)}, known.transition_times, now=now, generation=generation
            )
            known.transition_times = transition_times(made)
            status |= {"conditions": made, "observedGeneration": generation}
            meta = metadata_of(there)
            out.append((known.uid, PutStatus.of(PROFILES, "Profile", meta, status, urgent=False)))
        return out


def _steady(before: ClassSpeed | None, now: ClassSpeed) -> ClassSpeed:
    """Return how a class compares, with the speed that was told before if the new one hardly differs from it."""
    told = 1.0 if before is None else before.slow
    return now._replace(slow=told if abs(now.slow / told - 1.0) <= TELLING else round(now.slow, 2))


def _millis(seconds: float) -> float:
    """Return what is written down of a time: never nothing."""
    return max(0.001, round(seconds, 3))


def _status(known: _Profile, spec: api.ProfileSpec) -> api.ProfileStatus:
    classes = []
    for where, seen in sorted(known.seen.items()):
        found, transfer = known.work(where, spec), known.transfer(where, spec)
        fetched = known.fetched.get(where)
        classes.append(
            api.LearnedCost(
                pool=where.pool,
                node_class=where.node_class,
                per_unit=None if found is None else _digits(found.chi),
                transfer_per_unit=None if transfer is None else _digits(transfer.chi),
                transfer_setup=None if transfer is None else _digits(transfer.theta),
                startup=None if found is None else _digits(found.theta),
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


def _ready(known: _Profile, spec: api.ProfileSpec) -> Verdict:
    """Say whether it is known what a unit costs."""
    if spec.per_unit is not None:
        return Verdict("True", reasons.SET_BY_HAND, "spec.perUnit is set: it wins over what chunks take")
    most = max((len(seen) for where, seen in known.seen.items() if known.work(where, spec)), default=0)
    if most:
        return Verdict("True", reasons.LEARNED, f"learned from {some(most, 'chunk')}")
    seen = max(map(len, known.seen.values()), default=0)
    text = (
        f"{some(seen, 'chunk')} of {ENOUGH} have ended on nodes of one class; until then pilot chunks measure each job "
        "that names this profile. To know it at once, set spec.perUnit"
    )
    return Verdict("False", reasons.NOTHING_LEARNED, text)


def _transfers(fetched: Sequence[Fetched]) -> api.LearnedTransfers:
    units, opening, seconds = map(list, zip(*fetched, strict=True))
    return api.LearnedTransfers(units=units, opening=opening, seconds=seconds)


def _response(seen: Response) -> api.LearnedResponse:
    return api.LearnedResponse(**asdict(seen))


def _digits(number: float) -> float:
    return float(f"{number:.4g}")
