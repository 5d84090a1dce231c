"""What chunks of the jobs that name one profile took, by pool and class of nodes, and what follows for its cost."""

from dataclasses import astuple, dataclass, field
from typing import Final, NamedTuple

from punctual import reasons
from punctual.control.cost_estimation import ENOUGH, Estimate, Fetched, Timed, estimate, estimate_transfer, remember
from punctual.control.response import KEPT as KEPT_RESPONSES
from punctual.control.response import Response
from punctual.scheduling.model.wording import some
from punctual.theory.cost import Cost
from punctual.verdict import Verdict

MOST: Final = 16
"""Pools and classes remembered of one profile."""


class Where(NamedTuple):
    """On what kind of processor: the pool's, on nodes of a class."""

    pool: str
    node_class: str


class ByHand(NamedTuple):
    """What a profile's spec sets, symbols as in `Cost`. None: it is learned."""

    chi: float | None = None
    tau: float | None = None
    theta_cm: float | None = None
    theta_cp: float | None = None

    @property
    def transfer(self) -> bool:
        """Whether all that a transfer takes is set."""
        return self.tau is not None and self.theta_cm is not None


NOTHING_SET: Final = ByHand()


class Estimates(NamedTuple):
    """What a profile has learned: of χ and θcp, and of τ (as χ) and θcm; no ``transfer``: they are in the others.

    ``response``: how its chunks have answered to CPU, on the quickest class of the pool's nodes.
    """

    work: Estimate
    transfer: Estimate | None = None
    response: Response | None = None


def cost(by_hand: ByHand, learned: Estimates | None, *, fetches: bool) -> Cost | None:
    """Return the cost that a profile knows, by hand where it is set, else as learned; None: it does not know χ.

    ``fetches``: the job has an input; its transfers cost what the profile learned of transfers. A job without input
    makes its own transfers, if any, within its chunks: it is planned with the sums χ + τ and θcp + θcm, which is
    rather too much than too little. What is set of τ and θcm by hand is taken off these, so that a chunk takes what it
    took whatever they are.
    """
    chi, theta_cp = by_hand.chi, by_hand.theta_cp
    tau, theta_cm = by_hand.tau or 0.0, by_hand.theta_cm or 0.0
    if learned is not None:
        work, transfer = learned.work, learned.transfer
        found_chi, found_theta = work.chi, work.theta
        if fetches and transfer and not by_hand.transfer:
            tau, theta_cm = transfer.chi, transfer.theta
        else:
            found_chi += (transfer.chi if transfer else 0.0) - tau
            found_theta += (transfer.theta if transfer else 0.0) - theta_cm
        chi = max(1e-9, found_chi) if chi is None else chi
        theta_cp = max(0.0, found_theta) if theta_cp is None else theta_cp
    return None if chi is None else Cost(chi, tau, theta_cm, 2.0 if theta_cp is None else theta_cp)


@dataclass(slots=True)
class Samples:
    """What chunks of one profile took, a bounded number of them."""

    seen: dict[Where, tuple[Timed, ...]] = field(default_factory=dict)
    """What chunks took, the transfers of their inputs taken off."""
    fetched: dict[Where, tuple[Fetched, ...]] = field(default_factory=dict)
    """What these transfers took."""
    responses: dict[Where, tuple[Response, ...]] = field(default_factory=dict)
    """How chunks have answered to CPU."""
    _found: dict[tuple[str, Where, float | None, float | None], Estimate | None] = field(default_factory=dict)

    def add(self, where: Where, timed: Timed, fetched: Fetched | None, response: Response | None) -> None:
        """Add what a chunk took; ``fetched``: the part that its input took. Rounded as a status shows it."""
        seconds = timed.seconds - (fetched.seconds if fetched else 0.0)
        self.seen[where] = remember(self.seen.get(where, ()), Timed(timed.units, _millis(seconds)))
        if fetched is not None:
            fetched = Fetched(fetched.units, round(fetched.opening, 3), _millis(fetched.seconds))
            self.fetched[where] = remember(self.fetched.get(where, ()), fetched)
        if response is not None:
            response = Response(*map(digits, astuple(response)))
            self.responses[where] = (*self.responses.get(where, ()), response)[-KEPT_RESPONSES:]
        if len(self.seen) > MOST:
            least = min((w for w in self.seen if w != where), key=lambda w: (len(self.seen[w]), w))
            del self.seen[least]
            self.fetched.pop(least, None)
            self.responses.pop(least, None)
        self._found.clear()

    def of_pool(self, pool: str) -> dict[str, Where]:
        """Return where it was seen in a pool, by class."""
        return {where.node_class: where for where in self.seen if where.pool == pool}

    def work(self, where: Where, by_hand: ByHand = NOTHING_SET) -> Estimate | None:
        """Return what was learned of χ and θcp, beside what is set by hand.

        Where no transfers were seen, those that programs make by themselves are in it.
        """
        chi, theta = by_hand.chi, by_hand.theta_cp
        if self.transfer(where) is None:
            chi = None if chi is None else chi + (by_hand.tau or 0.0)
            theta = None if theta is None else theta + (by_hand.theta_cm or 0.0)
        key = ("work", where, chi, theta)
        if key not in self._found:  # it takes a millisecond, and many jobs may ask
            self._found[key] = estimate(self.seen[where], chi=chi, theta=theta)
        return self._found[key]

    def transfer(self, where: Where, by_hand: ByHand = NOTHING_SET) -> Estimate | None:
        """Return what was learned of τ and θcm, beside what is set by hand; where both are set there is no beside."""
        tau, theta = (None, None) if by_hand.transfer else (by_hand.tau, by_hand.theta_cm)
        key = ("transfer", where, tau, theta)
        if key not in self._found:
            self._found[key] = estimate_transfer(self.fetched.get(where, ()), tau=tau, theta=theta)
        return self._found[key]

    def ready(self, by_hand: ByHand) -> Verdict:
        """Say whether it is known what a unit costs."""
        if by_hand.chi is not None:
            return Verdict("True", reasons.SET_BY_HAND, "spec.perUnit is set: it wins over what chunks take")
        most = max((len(seen) for where, seen in self.seen.items() if self.work(where, by_hand)), default=0)
        if most:
            return Verdict("True", reasons.LEARNED, f"learned from {some(most, 'chunk')}")
        seen = max(map(len, self.seen.values()), default=0)
        text = (
            f"{some(seen, 'chunk')} of {ENOUGH} have ended on nodes of one class; until then pilot chunks measure each "
            "job that names this profile. To know it at once, set spec.perUnit"
        )
        return Verdict("False", reasons.NOTHING_LEARNED, text)


def digits(number: float) -> float:
    """Return a number with the digits that a status shows."""
    return float(f"{number:.4g}")


def _millis(seconds: float) -> float:
    """Return what is written down of a time: never nothing."""
    return max(0.001, round(seconds, 3))
