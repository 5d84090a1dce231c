"""Outbox of a step: actions, and the statuses that may have to be written with them.

The order is fixed. Results come first, then statuses, then everything else: what a record promises is in the API server
before anything acts on it.
"""

from dataclasses import dataclass, field

from punctual.scheduling.model.actions import Action
from punctual.scheduling.model.pool_spec import PoolRecord


@dataclass(slots=True)
class Outbox:
    """Actions that a step has collected, and what was written before."""

    actions: list[Action] = field(default_factory=list)
    """Results are stored before the statuses are written, as these say so; all else is carried out after that."""
    touched: dict[str, None] = field(default_factory=dict)
    """Jobs with a record that may have changed in this step."""
    progressed: dict[str, None] = field(default_factory=dict)
    """Jobs of which only the progress has changed; the longest waiting comes first."""
    pool_written: PoolRecord | None = None
    """The pool's record as last written."""

    def add(self, *actions: Action) -> None:
        """Add actions."""
        self.actions += actions

    def drop(self, uid: str) -> None:
        """Write nothing more for a job that is deleted."""
        self.touched.pop(uid, None)
