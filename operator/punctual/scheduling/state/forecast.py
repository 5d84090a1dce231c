"""Forecast of the time at which a promised job will be done: from its record, its observed chunks and its plan.

ETA, slack, the condition OnTrack, state, metrics and alert all follow from this one function, by way of
:mod:`punctual.scheduling.state.tracking`. A forecast has two ends. ``likely`` is the expected one. ``best`` is the
earliest that the reports allow: a pace measured over few reports may be wrong by one report. A deadline between the two
is neither kept nor missed by what is known.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.timing import LEFTOVER_CHUNK
from punctual.scheduling.state.job_state import ChunkObservation, JobState, Pace, expected_end
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance

STEADY = 5.0
"""Seconds of reported steps from which a pace is taken: a shorter time says little where a quota stops the chunk."""
REPORT = 1.0
"""Seconds between two reports of an agent: the time of a step is known to within them."""
UNSEEN = ChunkObservation()
"""Observation of a chunk that has not been seen."""


class Forecast(NamedTuple):
    """When a job, or a chunk, will be done."""

    best: float
    """Earliest time that the reports allow."""
    likely: float
    """Expected time, not before ``best``."""
    known: bool = True
    """Whether it follows from what was observed. Otherwise it repeats the plan, which proves nothing."""


class Setting(NamedTuple):
    """What a forecast needs to know of the pool."""

    processors: int
    """Number of the pool's processors."""
    placed: bool = True
    """Whether a plan says where and when waiting units run. Otherwise processors take them from a queue."""
    shared: bool = False
    """Whether chunks share processors, so that their caps move."""


def forecast(st: JobState, setting: Setting, now: float) -> Forecast:
    """Return when a job with a promise, or on leftover capacity, will be done; never before ``now``."""
    record, cost, promise = st.record, st.cost, st.record.promise
    assert cost is not None
    if any(c.kind == "Reduce" for c in record.chunks):
        end = max(now, *(expected_end(c, _seen(st, c), now=now) for c in record.chunks))
        return Forecast(end, end)
    reduce = 0.0 if st.job.reduce_duration is None else st.job.reduce_duration + cost.theta_cp
    waiting = st.job.units - record.completed.total - sum(c.size for c in record.chunks)
    pace = job_pace(st)
    ends = [_chunk(st, c, cost, pace, now, shared=setting.shared) for c in record.chunks]
    best = max((e.best for e in ends), default=now) + reduce
    likely = max((e.likely for e in ends), default=now) + reduce
    known = pace is not None or not ends
    if st.state == "Leftover":  # it may lose each of its processors to a promise, or get others: no plan says so
        end = max(likely, now + reduce + _shared_out(st, pace, ends, waiting, now))
        return Forecast(end, end, known or all(_seen(st, c).reported is not None for c in record.chunks))
    assert promise is not None
    if waiting:
        rest = _waiting(st, setting, pace, ends, waiting, now, reduce)
        best, likely = max(best, rest.best), max(likely, rest.best, rest.likely)
    elif not ends:
        best, likely = max(best, promise.finish), max(likely, promise.finish)
    return Forecast(best, likely, known)


def _waiting(  # noqa: PLR0917  as forecast, which has computed these
    st: JobState,
    setting: Setting,
    pace: Pace | None,
    ends: Sequence[Forecast],
    waiting: int,
    now: float,
    reduce: float,
) -> Forecast:
    """Return when the units of a promised job that wait for a processor will be done, and its reduce step."""
    cost, promise, chunks = st.cost, st.record.promise, st.record.chunks
    assert cost is not None
    assert promise is not None
    cost = st.job.cost_of_part(cost)
    most = max(1, min(st.job.max_processors or setting.processors, setting.processors))
    unit = pace.best if pace else cost.chi
    soonest = now + (0.0 if ends else cost.setup) + unit * waiting / most + reduce
    best = likely = promise.finish  # and later if units are slower than planned
    if pace is not None:
        on_each = waiting / (promise.processors if setting.placed else most)
        planned = cost.per_unit * st.planned_slowdown
        more = [seconds - planned for seconds in pace]
        if not st.job.unit_pods:  # pods of one unit follow each other at once, so faster ones let it end earlier
            more = [max(0.0, seconds) for seconds in more]
        best, likely = (promise.finish + seconds * on_each for seconds in more)
    if not setting.placed:  # the finish is a limit
        if ends:
            likely = min(likely, now + reduce + _shared_out(st, pace, ends, waiting, now))
        return Forecast(soonest, max(soonest, likely))
    if ends:  # and later if what waits follows chunks that are late
        pairs = list(zip(ends, chunks, strict=True))
        likely += max(0.0, *(e.likely - c.promised_end for e, c in pairs))
        if len(ends) >= most:
            best += max(0.0, *(e.best - c.promised_end for e, c in pairs))
    return Forecast(max(best, soonest), max(best, soonest, likely))


def _shared_out(st: JobState, pace: Pace | None, ends: Sequence[Forecast], waiting: int, now: float) -> float:
    """Return the seconds until a job is done if its processors, or one if it has none, share out all its work."""
    if not waiting:
        return 0.0
    cost = st.cost
    assert cost is not None
    cost = st.job.cost_of_part(cost)
    unit = pace.likely if pace else cost.per_unit * st.planned_slowdown
    queue = waiting * unit * (1.0 + cost.setup / LEFTOVER_CHUNK) + (0.0 if ends else cost.setup)
    return (sum(end.likely - now for end in ends) + queue) / max(1, len(ends))


def job_pace(st: JobState) -> Pace | None:
    """Return the mean pace of the job's chunks, or the last that was known; None: none has shown any.

    If each unit has a pod, it is that of the units that have ended, start-up included.
    """
    if (unit := st.unit_time) is not None:
        return Pace(unit, unit)
    found = [pace for c in st.record.chunks if (pace := chunk_pace(_seen(st, c)))]
    if not found:
        return st.pace
    return Pace(min(p.best for p in found), sum(p.likely for p in found) / len(found))


def chunk_pace(watch: ChunkObservation) -> Pace | None:
    """Return the pace between the first and the last report with a new unit, so without the start-up; None: too early.

    At the best, one report came late, and one more step has been done since the last.
    """
    if watch.first_step is None or watch.last_step is None:
        return None
    (began, before), (at, done) = watch.first_step, watch.last_step
    if done <= before or at - began < STEADY:
        return None
    return Pace((at - began - REPORT) / (done - before + watch.step), (at - began) / (done - before))


def forecast_end(chunk: Chunk, watch: ChunkObservation, *, now: float) -> float:
    """Return when a chunk will end by its pace; as `expected_end` until there is one.

    While no further unit is reported, the one under way is assumed to end now.
    """
    pace = chunk_pace(watch)
    if watch.last_step is None or chunk.size <= watch.done:
        return now if watch.last_step else expected_end(chunk, watch, now=now)
    if pace is None:
        return expected_end(chunk, watch, now=now)
    left = chunk.size - watch.done
    return max(watch.last_step[0] + left * pace.likely, now + (left - 1) * pace.likely)


def units_by(at: float, watch: ChunkObservation, *, now: float) -> int | None:
    """Return how many units a chunk will have done at a time, seconds, by its reports; None: they do not tell.

    As in `forecast_end`, no more than the unit under way is counted beyond its last report. Until it has a pace, its
    start-up counts as work, too: that pace is too slow rather than too fast.
    """
    if watch.last_step is None or watch.running_since is None or not watch.looked_at(now):
        return None
    (since, done), pace = watch.last_step, chunk_pace(watch)
    unit = pace.likely if pace else (since - watch.running_since) / done
    if unit <= 0.0:
        return None
    return done + max(0, math.floor((min(at - since, at - now + unit) + tolerance(at)) / unit))


def _chunk(st: JobState, chunk: Chunk, cost: Cost, usual: Pace | None, now: float, *, shared: bool) -> Forecast:
    """Return when a chunk will end. ``usual``: the pace of the job's chunks."""
    watch = _seen(st, chunk)
    own, left = chunk_pace(watch), chunk.size - watch.done
    if left <= 0:
        return Forecast(now, now)
    if own is None or watch.last_step is None:
        planned = max(now, expected_end(chunk, watch, now=now))
        if watch.running_since is None:  # it has begun no unit
            planned = max(planned, now + st.work(chunk))
        if usual is None:
            return Forecast(planned, planned, known=False)
        begun = max(now, chunk.created + cost.setup) if watch.running_since is None else watch.running_since
        if st.job.unit_pods:  # its pace includes the start-up
            begun = chunk.created
        return Forecast(planned, max(planned, begun + chunk.size * usual.likely))
    # A silent agent is no evidence: the units since its last report are not known.
    heard = now if watch.looked_at(now) or watch.reported is None else watch.reported
    at_best = min(own.best, cost.chi) if shared and watch.saturated <= 0.0 else own.best  # its cap may still rise
    best = max(now, watch.last_step[0] + left * at_best, heard + (left - watch.step) * at_best)
    return Forecast(best, max(best, forecast_end(chunk, watch, now=heard)))


def _seen(st: JobState, chunk: Chunk) -> ChunkObservation:
    return st.watches.get(chunk.key, UNSEEN)
