"""Table 4.1 of Solsona 2002: what becomes of SystemCoDe when a parameter grows, a letter for each policy.

The thesis has no numbers, so a letter needs a rule: it stands for the mean change over all values of the other
parameters, of SystemCoDe itself for LIN, and of its lead over LIN for the others. By it, 19 of the 26 letters are as
published (docs/papers.md says which are not, and why).
"""

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any, Final, NamedTuple

from punctual.sim.coschedule.report import Letter, TableReport
from punctual.sim.coschedule.scenario import Stations, StationsPolicy
from punctual.sim.coschedule.stations import simulate

POLICIES: Final[tuple[StationsPolicy, ...]] = ("LIN", "IMP", "EXP", "HPDT", "DYN", "PRE")
CONSTANT: Final = 0.015
SCARCE: Final = 0.05
"""Changes of up to so much are C, and SI or SD."""
PUBLISHED: Final[Mapping[str, Sequence[str]]] = {
    "NSTATIONS": ("C", "C", "C", "C", "C", "C"),
    "MRQL": ("D", "C", "SI", "I", "I", "I"),
    "maxm": ("C", "C", "C", "SI", "SI", "SI"),
    "pdt": ("SI", "SI", "SD", "D", "D", "D"),
    "MCO": ("", "", "", "", "I", "I"),
}
"""By parameter, letters of the policies in their order; empty: it has none."""


class Cell(NamedTuple):
    """One set of parameters."""

    nstations: int
    mrql: int
    maxm: int
    pdt: float
    mco: int = 0
    """By how much MCO differs from MRQL."""


GRID: Final = [Cell(*values) for values in product((4, 16), (2, 5), (1, 3), (0.2, 0.5, 0.8))]
OTHER_MCO: Final = [Cell(4, mrql, 3, pdt, mco) for mrql, pdt, mco in product((2, 5), (0.2, 0.5, 0.8), (-2, 2))]
ENDS: Final[Mapping[str, tuple[float, float]]] = {
    "NSTATIONS": (4, 16),
    "MRQL": (2, 5),
    "maxm": (1, 3),
    "pdt": (0.2, 0.8),
    "MCO": (-2, 2),
}
"""Between which values each parameter grows; MCO: less MRQL."""


def cells(policy: StationsPolicy) -> list[Cell]:
    """Return all cells of a policy."""
    return [*GRID, *(OTHER_MCO if policy in {"DYN", "PRE"} else ())]


def codes(policy: StationsPolicy, base: Stations, seed: int = 0) -> dict[Cell, float]:
    """Simulate a policy in all cells; return SystemCoDe of each. What the table does not vary is as in ``base``.

    In a cell all policies have the same tasks, so leads over LIN are sharp. Each cell has tasks of its own, so that
    errors even out.
    """
    return {cell: _code(cell, policy, base, seed) for cell in cells(policy)}


def _code(cell: Cell, policy: StationsPolicy, base: Stations, seed: int) -> float:
    more = {"stations": cell.nstations, "mrql": float(cell.mrql), "maxm": cell.maxm, "pdt": cell.pdt}
    made = base.model_copy(update={"policy": policy, "mco": cell.mrql + cell.mco, **more})
    found = simulate(made, seed * len(GRID) + GRID.index(cell._replace(mco=0))).system_code
    assert found is not None, "distributed tasks were served, and some of them had messages"
    return found


def table(base: Stations, seed: int = 0) -> TableReport:
    """Simulate all cells; return the table."""
    return TableReport(letters({policy: codes(policy, base, seed) for policy in POLICIES}))


def letters(found: Mapping[StationsPolicy, Mapping[Cell, float]]) -> list[Letter]:
    """Return the letters of what was simulated, row by row."""
    made = []
    for parameter, row in PUBLISHED.items():
        for policy, published in zip(POLICIES, row, strict=True):
            if published:
                lead = found[policy]
                if policy != "LIN":
                    lead = {cell: code - found["LIN"][cell._replace(mco=0)] for cell, code in found[policy].items()}
                change = _change(lead, parameter)
                made.append(Letter(parameter, policy, change, letter(change), published))
    return made


def _change(values: Mapping[Cell, float], parameter: str) -> float:
    """Return the mean change of a value when a parameter grows."""
    low, high = ENDS[parameter]
    name = parameter.lower()
    more: dict[str, Any] = {name: high}
    pairs = [(cell, cell._replace(**more)) for cell in values if getattr(cell, name) == low]
    return fmean(values[after] - values[before] for before, after in pairs if after in values)


def letter(change: float) -> str:
    """Return the letter of a change."""
    if abs(change) <= CONSTANT:
        return "C"
    return ("S" if abs(change) <= SCARCE else "") + ("I" if change > 0 else "D")
