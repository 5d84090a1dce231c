"""Chapter 5: what advance reservations cost. N = 256, τ = 1, χ = 1000, Avgσ = 2000, DCRatio 2, no set-ups, one port."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil, log

import numpy as np

from figures.draw import REFUSED, USED, grid, styles
from figures.figure import Figure, Found, Key, Numbers, Sim, Size, table
from figures.letter5 import letter
from punctual.scheduling.model.discipline import Discipline
from punctual.sim.options import Options
from punctual.sim.run import simulate
from punctual.sim.trace import JobLine, ReservationLine, Trace, jobs
from punctual.sim.workload import Workload
from punctual.theory.cost import Cost

N, COST = 256, Cost(1000.0, 1.0)
SHARES, ADVANCES = (0.0, 0.1, 0.3, 0.5, 0.8, 1.0), (0.0, 1.0, 2.0, 10.0)
PANELS = {"letter": "algorithms 1 to 4 to the letter", "pool": "the Pool, exact"}


def reservation(job: JobLine, advance: float) -> ReservationLine:
    """Return the reservation that stands for a job (algorithm 5); ``advance`` in s, but not before time 0."""
    gamma = 1 - job.load * COST.tau / job.deadline
    n = ceil(log(gamma) / log(COST.beta))
    seconds = (1 - COST.beta) / (1 - COST.beta**n) * job.load * COST.per_unit
    return ReservationLine(
        id=job.id,
        kind="reservation",
        arrival=max(0.0, job.arrival - advance),
        start=job.arrival,
        end=job.arrival + seconds,
        processors=n,
        io_ratio=job.load * COST.tau / seconds,
    )


def mixed(trace: Trace, share: float, advance: float, seed: int) -> Trace:
    """Turn a share of the jobs into reservations; who is turned with a small share is so with a larger one."""
    chosen = np.random.default_rng([seed, 5]).uniform(size=len(trace.lines)) < share
    return Trace.of(reservation(job, advance) if c else job for job, c in zip(jobs(trace), chosen, strict=True))


@dataclass(frozen=True)
class Point:
    """``share``: of the jobs that are reservations; ``advance``: Δ, in mean times between arrivals."""

    panel: str
    load: float
    share: float
    advance: float

    def trace(self, seed: int, size: Size) -> Trace:
        """Draw jobs and reservations."""
        workload = Workload(cost=COST, processors=N, load=self.load, average=2000.0, dc_ratio=2.0)
        regular = workload.draw(seed=seed, horizon=1e6 * size.stretch)
        return mixed(regular, self.share, self.advance / workload.rate, seed)

    def run(self, seed: int, size: Size) -> Numbers:
        """Simulate it; who is accepted is met."""
        if self.panel == "letter":
            return letter(self.trace(seed, size), N, COST)
        options = Options(processors=N, cost=COST, discipline=Discipline(network="OnePort"), offers=False)
        metrics = simulate(self.trace(seed, size), options).metrics()
        assert metrics["miss_ratio"] == 0.0
        return {"rejected": metrics["reject_ratio"], "utilization": metrics["utilization"]}

    def weight(self, size: Size) -> float:
        """Guess."""
        return (0.5 if self.panel == "letter" else 4.0) * self.load * size.stretch


def _points(size: Size, curves: dict[str, tuple[float, float]]) -> dict[Key, Sim]:
    """Return points over SystemLoad; curves by name: share and advance."""
    tenths = [n / 10 for n in range(1, 11)]
    return {
        Key(panel, name, load): Point(panel, load, share, advance)
        for panel in PANELS
        for name, (share, advance) in curves.items()
        for load in (tenths if size.every or panel == "letter" else tenths[1::4])
    }


def _by_share(size: Size, advance: float) -> dict[Key, Sim]:
    return _points(size, {f"{share:.0%}": (share, advance) for share in SHARES})


def _by_advance(size: Size, share: float) -> dict[Key, Sim]:
    return _points(size, {delta(advance): (share, advance) for advance in ADVANCES})


def delta(advance: float) -> str:
    """Return Δ in words."""
    return "Δ = 0" if advance == 0.0 else "Δ = 1/λ" if advance == 1.0 else f"Δ = {advance:g}/λ"


def _table(found: Found, names: list[str], metrics: Mapping[str, str]) -> str:
    head = "%, mean of loads 0.2, 0.6, 1", *names
    rows = [
        [f"{title}: {words}", *(found.level(panel, name, metric) for name in names)]
        for panel, title in PANELS.items()
        for metric, words in metrics.items()
    ]
    return "\n\n" + table(head, rows)


def _words_share(found: Found) -> str:
    return _table(found, [f"{share:.0%}" for share in SHARES], {"rejected": "refused", "utilization": "used"})


def _words_advance(found: Found) -> str:
    return _table(found, [delta(advance) for advance in ADVANCES], {"rejected": "refused"})


def _draw_share(found: Found):
    return grid(found, PANELS, styles([f"{share:.0%}" for share in SHARES]), metrics=(REFUSED, USED), width=4.0)


def _draw_advance(found: Found):
    return grid(found, PANELS, styles([delta(a) for a in ADVANCES]), metrics=(REFUSED,), width=4.0, height=3.0)


BASE = "N = 256, τ = 1, χ = 1000, Avgσ = 2000, DCRatio 2"
FIGURES = (
    Figure(
        "5.13",
        "Share of reservations, not booked ahead (5.13, 5.14)",
        f"{BASE}; Δ = 0; 0 to 100 % of the jobs are reservations (algorithm 5)",
        "refused grows and utilization falls from 0 % to 100 % of reservations",
        partial(_by_share, advance=0.0),
        _words_share,
        _draw_share,
        "Refused and used over SystemLoad for six shares of reservations made at their start",
    ),
    Figure(
        "5.15",
        "Share of reservations, booked one interarrival time ahead (5.15, 5.16)",
        f"{BASE}; Δ = 1/λ",
        "about alike for 0 to 50 %, clearly more refused for 80 and 100 %; utilization highest without reservations",
        partial(_by_share, advance=1.0),
        _words_share,
        _draw_share,
        "Refused and used over SystemLoad for six shares of reservations made one interarrival time ahead",
    ),
    *(
        Figure(
            name,
            f"How far ahead: {share:.0%} are reservations",
            f"{BASE}; {share:.0%} of the jobs are reservations",
            "refused falls as Δ grows, up to 2/λ; 10/λ is like 2/λ",
            partial(_by_advance, share=share),
            _words_advance,
            _draw_advance,
            f"Refused over SystemLoad for four advance factors with {share:.0%} of reservations",
        )
        for name, share in (("5.17", 0.3), ("5.18", 0.5))
    ),
)
