"""Scheduling discipline: order, partition, assignment, network and start, chosen independently.

order      EDF: earliest deadline first; FIFO: earliest arrival first; MWF (maximum workload derivative first): first
           the job for which one processor more than needed would waste the most time
partition  OPR divides a load so that all its processors end together, EPR into equal parts
assign     MN takes the fewest processors that meet the deadline, AN all useful ones
network    Concurrent: each processor fetches its input itself; OnePort: one transfer at a time
start      Ready: each processor begins when it is free; Together: all of a job at one time

The ten algorithms of Mamat 2011, ch. 4, are EDF and FIFO with each partition and assignment, and MWF with MN.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.theory.cost import Cost
from punctual.theory.execution_time import (
    execution_time,
    execution_time_equal,
    n_min,
    n_min_equal,
    n_star,
    n_star_equal,
    workload_derivative,
)

Ranking = Literal["EDF", "FIFO", "MWF"]
Rule = Literal["OPR", "EPR"]
Assignment = Literal["MN", "AN"]
Network = Literal["Concurrent", "OnePort"]
Start = Literal["Ready", "Together"]
Floats = NDArray[np.float64]


class Order(NamedTuple):
    """Queue key of a job: lowest rank first; ties by arrival, then uid, so the order is deterministic."""

    rank: float
    arrival: float
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Discipline:
    """The rules by which a pool plans."""

    order: Ranking = "EDF"
    partition: Rule = "OPR"
    assign: Assignment = "MN"
    network: Network = "Concurrent"
    start: Start = "Ready"

    @property
    def one_port(self) -> bool:
        """Whether inputs are sent one after the other."""
        return self.network == "OnePort"

    @property
    def together(self) -> bool:
        """Whether a job's processors wait for each other."""
        return self.start == "Together"

    @property
    def plain(self) -> bool:
        """Whether these are the defaults: OPR, MN, no port, and processors that start independently."""
        return self.partition == "OPR" and self.assign == "MN" and not (self.one_port or self.together)

    def order_of(self, uid: str, *, arrival: float, deadline: float, load: int, cost: Cost, processors: int) -> Order:
        """Return the queue key of a job: absolute times (s), its whole load (units), the pool's processors."""
        match self.order:
            case "EDF":
                rank = deadline
            case "FIFO":
                rank = arrival
            case "MWF":
                rank = -_derivative(load, deadline - arrival, cost, processors, self.partition)
        return Order(rank, arrival, uid)

    def durations(self, load: float, cost: Cost, *, limit: int) -> Floats:
        """Return E(load, n) in s for n = 1 … limit processors that begin at one time; inf if n are not useful."""
        return _durations(load, cost, limit, self.partition, self.one_port)

    def most_useful(self, load: float, cost: Cost, *, limit: int) -> int:
        """Return min(limit, n*): the number of processors with which the load ends soonest by the rule (4.4)."""
        star = n_star if self.partition == "OPR" else n_star_equal
        return star(load, cost, limit=limit) if self.one_port else limit


@lru_cache(maxsize=4096)
def _derivative(load: float, window: float, cost: Cost, limit: int, rule: Rule) -> float:
    """Return δw at n^min (4.1), with n^min counted from the arrival, so that the order is constant; w is OPR's."""
    least = n_min if rule == "OPR" else n_min_equal
    n = least(load, cost, window=window, limit=max(1, limit)) if window > 0 else None
    return workload_derivative(load, n or max(1, limit), cost)


@lru_cache(maxsize=4096)
def _durations(load: float, cost: Cost, limit: int, rule: Rule, one_port: bool) -> Floats:  # noqa: FBT001  a key
    if not one_port:
        found = cost.setup + load * cost.per_unit / np.arange(1.0, limit + 1.0)
    else:
        take = execution_time if rule == "OPR" else execution_time_equal
        useful = n_star(load, cost, limit=limit) if rule == "OPR" else limit
        found = np.full(limit, np.inf)
        found[:useful] = [take(load, n, cost) for n in range(1, useful + 1)]
    found.flags.writeable = False
    return found
