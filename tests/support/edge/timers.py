"""The period timers of aligned pods, and what an agent's thread does with them, at once.

In a product's agent, a thread finds when the kernel begins a pod's periods, and moves them within seconds. Here a pod's
periods begin at a moment of the world, and the agent knows it to `HALF`.
"""

from dataclasses import dataclass

from punctual.control.phase import TOLERANCE, Phase, wrap
from punctual_agent.phases import Phases, Steered

HALF = 0.0001
"""Seconds by which a found phase may be wrong."""


@dataclass(frozen=True)
class Moved:
    """A move of a pod's slices by ``by`` seconds. ``asked``: what asked for it, as `Timers` was told."""

    at: float
    uid: str
    by: float
    asked: tuple


class Timers(Phases):
    """The phases of one node's aligned pods. ``applications``: those of the world; ``asked()`` names what asks."""

    def __init__(self, world, node_clock, asked):
        self._world = world
        self._node_clock = node_clock
        self._asked = asked
        self._steered = {}

    def follow(self, targets, *, may_write):
        """Move the periods of these folders to where they are to begin."""
        moves = {key: one.moves for key, one in self._steered.items()}
        self._steered = {
            key: self._steer(key[0], target, may_write=may_write, moves=moves.get(key, 0))
            for key, target in targets.items()
            if key[0] in self._world.applications.found
        }

    def _steer(self, uid, target, *, may_write, moves):
        app, now, period = self._world.applications.found[uid], self._node_clock(), target.pair.period / 1e6
        begins = now + wrap(app.phase - self._world.loop.now, period)
        error = None if target.begins is None else wrap(begins - target.begins, period)
        if error is not None and may_write and abs(error) > max(TOLERANCE, target.bound):
            app.phase -= error
            self._world.applications.moves.append(Moved(self._world.loop.now, uid, -error, self._asked()))
            begins, error, moves = begins - error, 0.0, moves + 1
        return Steered(period, Phase(begins, HALF, now), error, moves, 0)

    def known(self):
        """Return what is known of each folder."""
        return dict(self._steered)

    def moves(self, uid):
        """Return no moves: none takes time."""
        return {}

    def end(self):
        """There is no thread."""
