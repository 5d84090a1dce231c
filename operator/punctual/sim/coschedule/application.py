"""An application in the model `slices`: ranks that compute, send, and wait for their partners."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from punctual.sim.coschedule.rounding import less
from punctual.sim.coschedule.scenario import App


@dataclass(slots=True, eq=False)
class Rank:
    """One process of an application, on one node."""

    application: "Application"
    node: int
    phase: float
    """Where its slices begin, s."""
    partners: Sequence[int]
    """Numbers of the ranks that it waits for, and its own."""
    slices: int = 0
    """Number of its next slice: it begins at phase + ``slices`` · period."""
    budget: float = 0.0
    """CPU seconds that it may use now; infinite in an open window, and for policy `share`."""
    left: float = 0.0
    """CPU seconds left of its iteration; 0: it waits for its partners."""
    begun: int = 1
    done: int = 0
    """Iterations that it has begun, or will after the latency; those that it has computed and sent."""
    used: float = 0.0
    spun: float = 0.0
    """CPU seconds in all, and those of them in which it only waited."""
    able: bool = False
    """Whether it has the CPU, or would have it if it wanted to run."""

    @property
    def shares(self) -> bool:
        """Return whether it takes turns with the node's hogs."""
        return self.application.app.policy == "share"

    @property
    def wants(self) -> bool:
        """Return whether it would run."""
        return self.left > 0.0 or self.application.app.wait == "spin"

    @property
    def until(self) -> float:
        """Return for how many seconds it can run before its work or its budget ends."""
        return min(self.budget, self.left or inf)

    def start(self) -> None:
        """Have it begin its next iteration."""
        self.left = self.application.app.grain

    def run(self, seconds: float) -> bool:
        """Count CPU seconds that it has got; return whether it has just sent."""
        self.used += seconds
        self.budget = less(self.budget, seconds)
        if self.left <= 0.0:
            self.spun += seconds
            return False
        self.left = less(self.left, seconds)
        if self.left > 0.0:
            return False
        self.done += 1
        return True


class Application:
    """The ranks of an application; how many of them are able to run at once, and for how long all were."""

    def __init__(self, app: App, phases: Sequence[float]) -> None:
        many = len(app.nodes)
        self.app = app
        self.ranks = [
            Rank(self, node, phase, partners(app.pattern, rank, many))
            for rank, (node, phase) in enumerate(zip(app.nodes, phases, strict=True))
        ]
        self._behind = many
        """Ranks that have not sent the present iteration, if each waits for all."""
        self._able = 0
        self._together = self._since = 0.0

    def ready(self, rank: Rank) -> Sequence[Rank]:
        """Return the ranks that have now all partners' messages, as ``rank`` has sent; each once an iteration."""
        if len(rank.partners) < len(self.ranks):
            ready = [other for number in rank.partners if self._may_begin(other := self.ranks[number])]
        else:
            self._behind = (self._behind or len(self.ranks)) - 1
            ready = [] if self._behind else self.ranks
        for other in ready:
            other.begun += 1
        return ready

    def _may_begin(self, rank: Rank) -> bool:
        return all(self.ranks[number].done >= rank.begun for number in rank.partners)

    def note(self, at: float, rank: Rank, *, able: bool) -> None:
        """Note whether a rank is able to run from ``at`` on."""
        if rank.able == able:
            return
        self._together += self._overlap(at)
        rank.able, self._since = able, at
        self._able += 1 if able else -1

    def together(self, at: float) -> float:
        """Return for how many seconds before ``at`` all ranks were able to run at once."""
        return self._together + self._overlap(at)

    def _overlap(self, at: float) -> float:
        return at - self._since if self._able == len(self.ranks) else 0.0


def partners(pattern: str, rank: int, ranks: int) -> Sequence[int]:
    """Return the ranks that a rank waits for, and itself; among fewer than four, `neighbours` are all."""
    if pattern == "all" or ranks < 4:
        return range(ranks)
    return sorted({(rank - 1) % ranks, rank, (rank + 1) % ranks})
