"""What is left of each promised job in a pool where pods share processors.

A job that is ahead of its line counts by what it has reported, so it leaves CPU for others. From that report on it has
a line of its own. So its need stays the same until its next report, and never takes back CPU that others were given.
How a job that is behind counts depends on the question. For a new promise, by its report. For promises that are made,
as if it were on its line: its agent brings it back, and a report that is late or missing is no reason to give a promise
up.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from punctual.scheduling.admission.fluid import FluidJob, FluidNode
from punctual.scheduling.chunks import ledger
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.state.job_state import JobState, off
from punctual.scheduling.state.pool_state import PoolState
from punctual.scheduling.state.terms import units_left
from punctual.theory.cost import Cost


@dataclass(slots=True)
class FluidJobs:
    """Reads the fluid jobs of a pool from its state."""

    state: PoolState
    planned: Callable[[JobState], Cost]
    """Returns the cost for planning a job."""
    due: Callable[[JobState], float]
    """Returns when a job's work must be done."""

    def nodes(self, now: float) -> list[FluidNode]:
        """Return the nodes that have pods or take some; one on which a pod found no room takes none for a while.

        A pod without a promise that nothing ends is as if it were not the pool's.
        """
        there, jobs = self.state.processors, self.state.jobs
        taken = Counter(place.node for place in there.occupants)
        held = Counter(
            place.node for place, occupant in there.occupants.items()
            if (st := jobs.get(occupant.job)) is not None and st.job.unit_pods and st.state == "Leftover"
        )  # fmt: skip
        taken -= held
        found = []
        for name, whole in sorted(there.whole.items()):
            pods = max(0, there.counts[name] - held[name])
            if there.blocked_until.get(name, 0.0) > now:
                pods = min(pods, taken[name])
            if whole > 0:
                found.append(
                    FluidNode(
                        name=name,
                        processors=whole,
                        pods=pods,
                        taken=taken[name],
                        speed=there.nodes[name].speed,
                        closed=name in there.closed,
                    )
                )
        return found

    def strictly(self, now: float) -> list[FluidJob]:
        """Return the promised jobs, as they count for a new promise."""
        return self._promised(now, behind=True)

    def leniently(self, now: float, *, without: Collection[str] = ()) -> list[FluidJob]:
        """Return the promised jobs, as they count for promises that are made.

        ``without``: nodes that are lost, with the work that runs there.
        """
        return self._promised(now, behind=False, without=without)

    def _promised(self, now: float, *, behind: bool, without: Collection[str] = ()) -> list[FluidJob]:
        live = (st for st in self.state.live.values() if st.state == "Promised")
        return [job for st in live if (job := self.job(off(st, without), now, behind=behind)) is not None]

    def job(self, st: JobState, now: float, *, behind: bool = False) -> FluidJob | None:
        """Return what is left of a job; None: nothing."""
        waiting = ledger.remaining(st.job.units, st.record)
        chunk = next((c for c in st.record.chunks if c.kind == "Chunk"), None)
        if not waiting and chunk is None:
            return None
        cost = self.planned(st)
        setup, left, pause = cost.setup * max(1, len(waiting.parts)), float(waiting.total), 0.0
        if chunk is not None:
            watch = st.watch(chunk)
            left += units_left(chunk, watch, cost.setup, now, behind=behind)
            pause = max(0.0, chunk.created + cost.setup - now) if watch.done == 0 else 0.0
        return FluidJob(
            uid=st.job.uid,
            due=self.due(st),
            work=left * cost.per_unit,
            setup=setup,
            pause=pause,
            node=None if chunk is None else chunk.node,
            leaving=chunk is not None and (chunk.offered is not None or chunk.end < chunk.origin),
            resumes=st.job.restart == "Resume" and not st.job.unit_pods,  # a unit that is cut short is begun again
            not_before=st.refused_until if st.refused_until > now else 0.0,
            ranges=waiting,
            eligible=self.state.processors.eligible(st.job.rules),
            unit_pods=st.job.unit_pods,
        )


def last_chunk(st: JobState) -> Chunk | None:
    """Return the running chunk that has all that is left of a job; None: there is none."""
    for chunk in st.record.chunks:
        if chunk.kind == "Chunk" and not ledger.remaining(st.job.units, st.record):
            return chunk
    return None
