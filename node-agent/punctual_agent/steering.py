"""Keeps the pods of a node on their lines: measures their progress, and chooses caps that add up.

Each pod with a line has a governor (:mod:`punctual.control`), and each pool an arbiter on this node. The operator sends
the line, its range and a model; everything that a second needs is here, so lines are kept while the operator is away.

A chunk that sleeps or waits for a disk does not use its CPU, and caps cannot help it. It keeps its own processor unless
another chunk needs more than one: what it could use is not known.

Progress is counted in units. A chunk with few units shows nothing for many samples; then its CPU time stands for its
progress, at the cost of a unit that it has shown so far.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from punctual.control.adaptive import Adaptive
from punctual.control.arbiter import Arbiter, CpuClaim
from punctual.control.follow import Line
from punctual.control.governor import Sample
from punctual.control.learner import LEAST_R2
from punctual.control.model import Model
from punctual.control.pi import Gains, Tuned
from punctual.wire import Followed, LineOrder, Loop, SetPoint
from punctual.wire import ResponseModel as SentModel

FEWEST: Final = 40
"""Units below which CPU time stands for progress: a sample would mostly show none."""
IDLE: Final = 0.9
"""Part of its cap below which a pod does not use what it has ..."""
BOUND: Final = 0.5
"""... unless it uses up its cap in more than this part of the CFS periods: then its cap holds it back."""
ROOM: Final = 1.2
"""Cap of such a pod relative to what it uses: more would be taken from others for nothing."""
PRESSED: Final = 10.0
"""Per cent of the time in which a task waits for CPU, from which on the node has too little of it."""
STILL: Final = 0.2
"""Part of their caps below which pods use so little that they must be waiting for something else."""
FALLING: Final = 0.9
RISING: Final = 1.1
"""Factors per second on the CPU that a pool is believed to get: if it is too much, and to see if more is there."""
LEAST_COST: Final = 1e-9
"""CPU seconds of a unit: a worker may report units that took none."""
MEMORY: Final = 0.3
"""Weight of the newest second in the CPU use."""
BUSY: Final = 60.0
"""Seconds after a pod has last used its whole cap for which it would still use it if it got it."""


@dataclass(slots=True)
class _Steered:
    """One pod on its line."""

    own: float
    """CPU of its processor, up to which it is lent what others do not need: cores."""
    told: float
    """Cap of its set point, cores."""
    order: LineOrder
    ends: float
    """The time of the line's end."""
    due: float
    """The time by which its job must be done: how urgent it is. A chunk may be planned to end long before that."""
    governor: Adaptive
    by_cpu: bool
    """CPU time stands for its progress."""
    loop: Loop | None = None
    """The controller that the operator sent last."""
    joined: bool = False
    """The governor has taken its first sample."""
    began: float | None = None
    """The time at which the open sample began; None: the pod has shown no progress, it may still start."""
    units: float = 0.0
    cpu: float = 0.0
    """Units and CPU seconds at that time."""
    cap: float = 0.0
    """Cap since then, cores."""
    looked: float = 0.0
    seen_cpu: float = 0.0
    """The time of the last look, and the CPU seconds then."""
    use: float | None = None
    """CPU that it uses, smoothed, cores."""
    bound: float = 0.0
    """Part of the CFS periods in which it used up its cap, smoothed."""
    full: float | None = None
    """The time at which it last used its whole cap."""
    done: float = 0.0
    cpu_per_unit: float = 0.0
    saturated_since: float | None = None

    @property
    def idle(self) -> bool:
        """It does not use the cap that it has."""
        return self.use is not None and self.use < IDLE * self.cap and self.bound < BOUND

    def busy(self, now: float) -> bool:
        """Whether its CPU limits it, or did so lately. Otherwise it waits for something else."""
        return self.full is not None and now - self.full <= BUSY


@dataclass(slots=True)
class Steering:
    """All pods of a node that have lines."""

    _pods: dict[str, _Steered] = field(default_factory=dict)
    _arbiters: dict[str, Arbiter] = field(default_factory=dict)
    """By pool; their ``usable`` is the CPU that the pool really gets on this node."""

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def saturated(self) -> int:
        """The number of pods that need more CPU than their pool has here."""
        return sum(one.saturated_since is not None for one in self._pods.values())

    def tell(self, uid: str, point: SetPoint, now: float) -> None:
        """Take a set point; without a line, the pod holds its cap from now on."""
        order = point.mode
        if not isinstance(order, LineOrder):
            self._pods.pop(uid, None)
            return
        ends = due = now + order.seconds_left
        if order.due_seconds_left is not None:
            due = now + order.due_seconds_left
        one = self._pods.get(uid)
        if one is None or (one.began is None and order.model != one.order.model):
            # the operator may have learned more while the pod was starting
            one = self._pods[uid] = _begin(point.cap, order, ends, due)
        order = order.model_copy(update={"sample": one.order.sample})  # its model counts in these samples
        one.own, one.told, one.order = order.ceiling or point.cap, point.cap, order
        one.ends, one.due = ends, due
        one.governor.limit(order.floor, _most(order))
        if order.loop is not None and (order.loop != one.loop or one.governor.untuned is not None):
            sent = one.loop = order.loop
            one.governor.adopt(
                Tuned(gains=Gains(sent.kp, sent.ki), alpha=sent.alpha, calm=sent.calm, threshold=sent.threshold)
            )

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._pods.pop(uid, None)

    def look(
        self, uid: str, now: float, *, done: int | None, cpu: float, cap: float | None, bound: float | None = None
    ) -> None:
        """Take what a pod has done until now: units, CPU seconds since it started, and the cap in force, cores.

        ``bound``: the part of the CFS periods since the last look in which it used up its cap; None: unknown.
        """
        one = self._pods.get(uid)
        if one is None:
            return
        if done is not None and done > one.done:
            one.done = done
            one.cpu_per_unit = max(cpu / done, LEAST_COST)
        if bound is not None:
            one.bound += MEMORY * (bound - one.bound)
        if now > one.looked > 0.0:
            used = max(0.0, cpu - one.seen_cpu) / (now - one.looked)
            one.use = used if one.use is None else one.use + MEMORY * (used - one.use)
            if one.cap > 0.0 and not one.idle:
                one.full = now
        if one.looked == 0.0 and one.done > 0.0 and cap:
            one.cap = min(cap, one.order.pool_cores)  # an agent before this one has chosen it
        one.looked, one.seen_cpu = now, cpu
        units = cpu if one.by_cpu else one.done
        if one.began is None or now < one.began:
            one.began, one.units, one.cpu = (now if units > 0.0 else None), units, cpu
        elif now - one.began >= one.order.sample - 0.5:
            dt = now - one.began
            sample = Sample(dt, units - one.units, (cpu - one.cpu) / dt, cap or one.cap or one.told)
            (one.governor.observe if one.joined else one.governor.join)(sample)
            one.began, one.units, one.cpu, one.joined = now, units, cpu, True
        # what is left is known exactly; the governor only estimates it between two looks
        one.governor.line.units = self._total(one) - units
        one.governor.line.seconds = one.ends - now

    def caps(self, now: float, pressure: float | None = None) -> dict[str, float]:
        """Return the cap of each pod with a line for the next second, cores.

        ``pressure``: per cent of the time in which a task of the node waited for CPU; None: unknown.
        """
        pools: dict[str, list[str]] = {}
        for uid, one in self._pods.items():
            pools.setdefault(one.order.pool, []).append(uid)
        caps: dict[str, float] = {}
        arbiters: dict[str, Arbiter] = {}
        for pool, uids in pools.items():
            pods = [self._pods[uid] for uid in uids]
            cores = max(one.order.pool_cores for one in pods)
            arbiter = arbiters[pool] = self._arbiters.get(pool) or Arbiter(cores, cores, disk=False)
            arbiter.cores = arbiter.usable = _available(arbiter.usable, cores, pods, pressure, now)
            claims = [self._claim(uid, one, now) for uid, one in zip(uids, pods, strict=True)]
            if arbiter.usable < cores:
                # what pods that wait leave of theirs is not there for the others
                claims = [claim if one.busy(now) else _own(claim, one) for claim, one in zip(claims, pods, strict=True)]
            caps |= arbiter.share(claims, lend=True)
        self._arbiters = arbiters
        for uid, cap in caps.items():
            self._pods[uid].cap = cap
        return caps

    def report(self, uid: str, now: float) -> Followed | None:
        """Return what the operator should know of a pod; None: it has no line."""
        one = self._pods.get(uid)
        if one is None:
            return None
        since = one.saturated_since
        return Followed(
            needed=min(4096.0, one.governor.needed or 0.0),
            saturated_seconds=0.0 if since is None else max(0.0, now - since),
            sample=one.governor.period,
            samples=one.governor.samples,
            model=_model(one),
            noise=one.governor.noise,
        )

    def _claim(self, uid: str, one: _Steered, now: float) -> CpuClaim:
        wish = one.governor.wish().cap if one.joined else one.cap or one.told
        if one.idle and one.use is not None:
            wish = min(wish, max(one.own, ROOM * one.use))
        needed = one.governor.needed or 0.0
        if needed <= _most(one.order):
            one.saturated_since = None
        elif one.saturated_since is None:
            one.saturated_since = now
        left = one.governor.line
        gain = one.governor.gain
        cpu_left = left.units * one.governor.period / gain if gain else one.own * max(0.0, left.seconds)
        # with all CPU that it may get: a chunk that its own processor cannot bring home in time is not lost
        fastest = cpu_left / _most(one.order)
        return CpuClaim(
            id=uid,
            wish=wish,
            modelled=one.governor.modelled,
            low=one.order.floor,
            # CPU beyond its own processor is for a pod that needs it; CPU that no pod needs is lent up to that only
            high=max(one.own, wish),
            must=min(one.own, cpu_left / (one.due - now)) if one.due > now else one.own,
            slack=one.due - now - fastest,
            starved=one.joined and one.idle and not one.busy(now),
        )

    @staticmethod
    def _total(one: _Steered) -> float:
        """Return the chunk's work in what its progress counts."""
        return one.order.units * one.cpu_per_unit if one.by_cpu else float(one.order.units)


def _own(claim: CpuClaim, one: _Steered) -> CpuClaim:
    """Return the claim of a pod to its processor, no more and no less."""
    return replace(claim, wish=one.own, low=one.own, high=one.own)


def _available(before: float, cores: float, pods: Sequence[_Steered], pressure: float | None, now: float) -> float:
    """Return the CPU that a pool's pods can get on this node, at most ``cores``. Pods that wait count with their own.

    Where other programs take the node's CPU, or its machine gives it less, caps limit nothing, and all pods are slowed
    alike. The caps must then add up to what there is, so that urgent chunks are slowed last. A pod that waits for a
    disk uses less than its cap, too. So this is assumed only if tasks of the node wait for CPU, and a pod that has used
    its whole cap lately gets less than it needs and no less than any other pod, and there is another one to slow.
    """
    busy = [one for one in pods if one.busy(now)]
    uses, capped = [one.use or 0.0 for one in busy], sum(one.cap for one in busy)
    short = pressure is not None and pressure > PRESSED and len(busy) > 1 and STILL * capped < sum(uses)
    short = short and any(
        one.joined and one.idle and max(uses) * IDLE <= use < (one.governor.needed or 0.0)
        for one, use in zip(busy, uses, strict=True)
    )
    least = sum(uses) + sum(one.own for one in pods if not one.busy(now))
    return min(cores, max(before * FALLING if short else before * RISING, least))


def _model(one: _Steered) -> SentModel:
    """Return the model that a new agent should begin with. Its gain is the one that the last samples have shown."""
    gain = one.governor.gain
    if one.by_cpu or gain is None:
        return SentModel(a=0.0, b=one.governor.period / max(one.cpu_per_unit, LEAST_COST))
    model = one.governor.untuned or one.governor.in_force
    return SentModel(a=model.a[0], b=gain * (1.0 - model.a[0]), delay=model.delay, learned=one.governor.learned)


def _received(sent: SentModel) -> Model:
    """Return a model to begin with. A learned one is believed; what this pod shows more clearly will replace it."""
    return Model.first_order(sent.a, sent.b, delay=sent.delay, r2=LEAST_R2 if sent.learned else 0.0)


def _most(order: LineOrder) -> float:
    """Return the largest cap of a pod, cores."""
    return order.pool_cores if order.ceiling is None else min(order.ceiling, order.pool_cores)


def _begin(cap: float, order: LineOrder, ends: float, due: float) -> _Steered:
    sent = order.model
    by_cpu = order.units < FEWEST
    # a core gives as many CPU seconds in a sample as the sample has seconds
    model = Model.first_order(0.0, order.sample) if by_cpu else _received(sent)
    line = Line(float(order.units), order.seconds_left)
    governor = Adaptive(line, order.floor, _most(order), model, order.sample, noise=order.noise)
    per_unit = order.sample * (1.0 - sent.a) / sent.b  # CPU seconds of a unit by the model
    made = _Steered(order.ceiling or cap, cap, order, ends, due, governor, by_cpu, cpu_per_unit=per_unit)
    if by_cpu:
        governor.line.units *= per_unit
    return made
