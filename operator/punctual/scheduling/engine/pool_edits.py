"""Spec of the pool: taken in at first, and tested as a change when it is edited.

An edit comes into force only if every promise is still kept under it. It is tested on a copy of the state, so a refused
edit has changed nothing.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from punctual import reasons
from punctual.scheduling.engine.admission_mode import AdmissionMode
from punctual.scheduling.engine.node_events import NodeEvents
from punctual.scheduling.engine.reservations import AcceptedReservations
from punctual.scheduling.model.events import PoolApplied
from punctual.scheduling.model.pool_spec import UNREAD, PoolSpec
from punctual.scheduling.model.processors import Processors
from punctual.scheduling.model.startup_times import StartupTimes
from punctual.scheduling.model.wording import some
from punctual.scheduling.state.pool_state import PoolState
from punctual.scheduling.state.terms import terms_of
from punctual.verdict import Verdict


@dataclass(slots=True)
class PoolEdits:
    """Takes in the pool's spec, and applies edits of it."""

    state: PoolState
    mode: AdmissionMode
    windows: AcceptedReservations
    nodes: NodeEvents

    def applied(self, event: PoolApplied) -> None:
        """Take in the spec: the first one, or the one that an earlier leader recorded, is in force at once."""
        state, request = self.state, self.state.request
        request.deleting = event.deleting
        new = event.spec != request.spec
        if state.spec is UNREAD:
            record = event.record
            spec = record.applied if record and record.applied else event.spec
            state.put_in_force(spec)
            if record:
                request.verdict = record.spec_applied
                state.pods.startups = StartupTimes(record.startups)
                state.misses.found = record.miss
                state.holding.since = {n.name: n.held_since for n in record.nodes if n.held_since is not None}
                new = record.observed_generation < event.spec.generation
            for node in state.processors.nodes.values():
                state.processors.observe(node, spec)
            state.outdated.capacity_changed()
        request.spec, request.nodes = event.spec, event.nodes
        # The spec is tested in the next step: after a restart, promises that it could break may not have been read yet.
        request.edited = request.edited or new
        state.taint()

    def apply(self, now: float) -> None:
        """Apply an edited spec if every promise is still kept under it; otherwise record why not."""
        state, request = self.state, self.state.request
        asked, there = request.spec, state.processors.nodes
        request.edited = False
        wanted = there if request.nodes is None else {node.name: node for node in request.nodes}
        going = there.keys() - wanted.keys()
        after = state.processors.under(asked, [node for name, node in wanted.items() if name not in there])
        if why := self._stands_against(now, asked, after, going):
            request.verdict = Verdict("False", reasons.EDIT_REFUSED, f"{why}; the old spec stays in force")
            return
        state.put_in_force(asked)
        state.processors = after
        request.verdict = Verdict("True", reasons.APPLIED, "the spec is in force")
        state.outdated.capacity_changed()
        for name in sorted(going):
            self.nodes.gone(now, name)
        state.taint()

    def _stands_against(self, now: float, asked: PoolSpec, after: Processors, going: AbstractSet[str]) -> str | None:
        """Return which promises prevent an edit of the pool, if any.

        ``after``: processors under the new spec; those on nodes in ``going`` would leave the pool.
        """
        state, old, terms = self.state, self.state.terms, terms_of(asked)
        promised, ahead = [st for st in state.live.values() if st.state == "Promised"], len(state.ahead.held)
        if terms.shares != old.shares and (promised or ahead):
            given = _listed(len(promised), ahead)
            return f"{given} made with admission {old.spec.admission} cannot be kept with {asked.admission}"
        if not terms.guaranteed:
            certain = [st for st in promised if not st.is_statistical]
            if old.guaranteed and (certain or ahead):
                return f"{_listed(len(certain), ahead)} made without missRatio would no longer be guaranteed"
            return None
        return self._would_break(now, asked, after, going)

    def _would_break(self, now: float, asked: PoolSpec, after: Processors, going: AbstractSet[str]) -> str | None:
        """Return which guaranteed promises an edit would break, if any."""
        if not asked.discipline.one_port and (sending := self.windows.sending()):
            return f"with network Concurrent {some(sending, 'reservation')} would lose the link that it keeps free"
        if robbed := self.windows.robbed({node: n for node, n in after.open_counts.items() if node not in going}):
            return f"with this spec, {some(robbed, 'reservation')} would lose processors"
        broken, jobs, total = self.mode.broken_by(now, asked, after, going)
        if not broken:
            return None
        return (
            f"with this spec, the pool would have {some(total, 'processor')} instead of "
            f"{self.state.processors.total}, and {broken} of {some(jobs, 'promise')} would be broken"
        )


def _listed(promises: int, reservations: int) -> str:
    """Return a text for so many promises and reservations, of which there is at least one."""
    return " and ".join(some(n, what) for n, what in ((promises, "promise"), (reservations, "reservation")) if n)
