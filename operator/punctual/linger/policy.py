"""The four policies for a guest on a node that becomes busy (Ryu 2001, 3.3 and 4.2).

- ImmediateEviction: moves at once; without an idle node, it waits in the queue.
- PauseAndMigrate: pauses; moves after `PAUSE` seconds if the node is still busy and another one is idle.
- LingerLonger: goes on at the lowest priority; moves when that pays (:mod:`punctual.linger.cost`).
- LingerForever: goes on, and never moves.
"""

from dataclasses import dataclass
from typing import Final, Literal

from punctual.linger.cost import Move

PAUSE: Final = 600.0
"""Pause of PauseAndMigrate, s. The paper gives Condor's ten minutes for its prototype, and none for its simulation."""

Policy = Literal["LingerLonger", "LingerForever", "ImmediateEviction", "PauseAndMigrate"]
Step = Literal["Run", "Pause", "Move", "Queue"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a guest does next, and the numbers behind it."""

    step: Step
    age: float = 0.0
    """Age of the episode, s; 0: the node is idle."""
    linger: float | None = None
    """Age from which on a move would pay, s; None: it was not asked."""


def lingers(policy: Policy) -> bool:
    """Return whether guests may begin and go on on busy nodes."""
    return policy in {"LingerLonger", "LingerForever"}


def decide(policy: Policy, age: float | None, move: Move | None, *, pause: float = PAUSE) -> Decision:
    """Return what a guest does.

    age     seconds for which its node has been busy; None: the node is idle
    move    to the best idle node; None: there is none
    pause   of PauseAndMigrate, s
    """
    if age is None:
        return Decision("Run")
    if policy == "ImmediateEviction":
        return Decision("Queue" if move is None else "Move", age)
    if policy == "PauseAndMigrate":
        return Decision("Move" if move is not None and age >= pause else "Pause", age)
    if policy == "LingerForever" or move is None:
        return Decision("Run", age)
    return Decision("Move" if move.pays(age) else "Run", age, move.linger)
