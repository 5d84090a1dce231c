"""Explanations of a job's state: why it is refused, late, here, or not started, in the operator's own numbers.

The sentences come from what the job's status says, and from a view of its pool. This module does no I/O and reads no
clock, so the command line and the operator's page give the same explanation. ``names`` has the jobs that the reader may
know, by uid; every other job is "a job of another namespace".
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from punctual import reasons
from punctual.scheduling.model.wording import some, span
from punctual.scheduling.view import PlacedWork, PoolView
from punctual.view.conditions import NOTHING, said
from punctual.view.guests import DecisionView, Rules, decided, guest_chunk, guest_job
from punctual.view.jobs import OFFERED, ChunkView, JobView, PodView
from punctual.view.subject import (
    NO_PODS,
    SHOWN,
    STRANGER,
    Subject,
    chunks_run,
    failures,
    few,
    not_started,
    what_of,
)

OFF: Final = 1.05
"""Pace of a chunk, over its cost, from which on it is called slow: reports have whole seconds and units."""
OLD: Final = 3.0
"""Seconds by which a report in a status may be old: agents report each second, progress is written twice a second."""
LEAST: Final = 3
"""Units that a chunk must have reported before its pace is computed."""


def why(
    job: JobView, pool: PoolView | None, now: float, names: Mapping[str, str], pods: Mapping[str, PodView] = NO_PODS
) -> tuple[str, ...]:
    """Explain a job's state in sentences.

    ``pool``: its pool; None if it is not known. ``names``: "namespace/name" by uid, of the jobs that may be named.
    ``pods``: pods of its chunks by name, if they are known: they tell why a chunk has not started.
    """
    return tuple(_sentences(Subject(job, pool, now, names, pods)))


def why_chunk(  # noqa: PLR0917  as why, and which chunk
    job: JobView,
    chunk: ChunkView,
    pool: PoolView | None,
    now: float,
    names: Mapping[str, str],
    pod: PodView | None = None,
) -> tuple[str, ...]:
    """Explain a chunk that is under way: what it does, why on this node at this time, whether it is late."""
    pods = NO_PODS if pod is None else {pod.name: pod}
    return tuple(_chunk(Subject(job, pool, now, names, pods), chunk))


def why_guest_chunk(
    job: JobView,
    chunk: ChunkView,
    now: float,
    *,
    told: DecisionView | None,
    rules: Rules | None,
    pod: PodView | None = None,
) -> tuple[str, ...]:
    """Explain a guest's chunk: where it is, what it gets, what was decided about it last, and what may come next.

    ``told``: the last decision in its pod's events; ``rules``: those of its pool, None if they are not known.
    """
    pods = NO_PODS if pod is None else {pod.name: pod}
    return tuple(guest_chunk(Subject(job, None, now, {}, pods), chunk, told, rules))


def why_over(job: JobView, pod: PodView, now: float, told: DecisionView | None = None) -> tuple[str, ...]:
    """Explain a pod that is no longer a chunk of its job: it has ended, or its units are no longer its own.

    ``told``: the last decision about it, of a guest's pod.
    """
    what = "the reduce step" if pod.kind == "Reduce" else f"units {pod.begin}-{pod.end}"
    took = "" if None in {pod.started, pod.finished} else f" after {span((pod.finished or 0.0) - (pod.started or 0.0))}"
    found = [f"It was {what} of {job.namespace}/{job.name}, on node {pod.node or 'none'}. It is {pod.phase}{took}."]
    if pod.message:
        found.append(said("Its container said", "termination message", pod.message))
    if pod.phase == "Failed":
        found.append(
            f"Its units were given to another chunk. The job is {job.state}. kubectl logs {pod.name} shows its log."
        )
    if told is not None:
        found.append(decided(Subject(job, None, now, {}, NO_PODS), told))
    return tuple(found)


def _sentences(on: Subject) -> Iterator[str]:
    job = on.job
    match job.state:
        case "Refused" | "Waiting" | "Running" if job.state == "Refused" or job.goes_on:
            yield from _refused(on)
        case "Waiting" | "Running" | "Suspended" if _is_admitted_guest(job):
            yield from guest_job(on)
        case "Waiting" if job.promised:
            yield from _promised(on)
            yield from _waits(on)
        case "Waiting" | "Measuring" | "Suspended":
            yield from _unanswered(on)
        case "Running":
            yield from _promised(on)
            yield from _under_way(on)
            yield from _waits(on)
        case "Late":
            yield from _late(on)
            yield from _under_way(on)
            yield from _waits(on)
        case _:
            yield from _ended(on)
    applied = job.conditions.get("SpecApplied")
    if applied and applied.status == "False":
        yield said("The last edit of its spec is not in force", applied.reason, applied.message)
    if on.pool is None and not job.guest and job.state in {"Refused", "Waiting", "Running", "Late"}:
        yield "What the pool's processors do is not known here."


def _is_admitted_guest(job: JobView) -> bool:
    return job.guest and (job.state == "Suspended" or job.conditions.get("Admitted", NOTHING).status == "True")


# Answers


def _refused(on: Subject) -> Iterator[str]:
    job = on.job
    when = job.conditions.get("Admitted", NOTHING).since
    ago = "" if when is None else f" {span(max(0.0, on.now - when))} ago"
    where = "It was refused" if job.reason == reasons.POOL_NOT_FOUND else f"Pool {job.pool} refused it"
    yield said(f"{where}{ago}", job.reason, job.message)
    if job.reason in OFFERED:
        yield from _nearest(on)
    if job.goes_on:
        yield from _under_way(on)
        yield from _on_leftovers(on, "It gets the processors that no promise needs.")


def _nearest(on: Subject) -> Iterator[str]:
    job = on.job
    if job.per_unit is not None and "processor time" not in job.message:
        work = job.units * job.per_unit
        yield (
            f"{some(job.units, 'unit')} of {job.per_unit:.3g}s take {span(work)} of one processor, and each chunk "
            f"takes {span(job.startup)} more to start."
        )
        yield from _headroom(on)
    if on.pool is not None:
        yield from _load(on, on.pool)
    yield _offered(on)


def _offered(on: Subject) -> str:
    job = on.job
    if job.offer_until is None:
        return "The operator has not computed an offer yet."
    parts = []
    if job.offered_time:
        parts.append(f"spec.deadlineTime {job.offered_time} (a new job: spec.deadline {job.offered})")
    if job.offer_load:
        parts.append(f"{some(job.offer_load, 'unit')} by the requested deadline")
    if job.lacking:
        more, start, until = job.lacking
        lacking = f"{some(more, 'more processor')} from {on.at(start)} until {on.at(until)}"
        parts.append(f"all of it by the requested deadline with {lacking}")
    if not parts:
        return "No other deadline and no smaller load would be promised."
    if job.offer_until >= on.now:
        return f"Would be promised: {', or '.join(parts)}. This holds until {on.at(job.offer_until)}."
    return f"Would have been promised until {on.at(job.offer_until)}: {', or '.join(parts)}. An edit asks again."


def _load(on: Subject, pool: PoolView) -> Iterator[str]:
    """Tell what the pool's processors do, and what is promised on them."""
    running, planned = _by_job(pool.all_running()), _by_job(pool.all_planned())
    ends = sorted(piece.until for pieces in running.values() for piece in pieces)
    free = f"{pool.free} of them free" if pool.free or not ends else f"none of them free, the first at {on.at(ends[0])}"
    yield f"The pool has {some(pool.processors, 'processor')} now, {free}."
    ends_of = {uid: max(piece.until for piece in pieces) for uid, pieces in running.items()}
    told = [
        f"{_these(on, uid)} {_uses(pool, len(running[uid]))}, by plan until {on.at(end)}."
        for uid, end in sorted(ends_of.items(), key=lambda item: item[1])
    ]
    starts = {uid: min(piece.start for piece in pieces) for uid, pieces in planned.items() if uid != on.job.uid}
    for uid, start in sorted(starts.items(), key=lambda item: item[1]):
        number = some(len({piece.place for piece in planned[uid]}), "processor")
        end = max(piece.until for piece in planned[uid])
        verb = "has more work planned on" if uid in running else "is promised"
        told.append(f"{_these(on, uid)} {verb} {number} from {on.at(start)} to {on.at(end)}.")
    yield from few(told, "more jobs run or are promised")
    yield from _windows(on, pool)


def _uses(pool: PoolView, processors: int) -> str:
    return "shares a processor" if pool.schedule == "Utilization" else f"runs on {some(processors, 'processor')}"


def _these(on: Subject, uid: str) -> str:
    text = on.named(uid)
    return text[0].upper() + text[1:] if text in {STRANGER, "this job"} else text


def _by_job(work: Iterable[tuple[str, PlacedWork]]) -> dict[str, list[PlacedWork]]:
    found: dict[str, list[PlacedWork]] = {}
    for uid, piece in work:
        found.setdefault(uid, []).append(piece)
    return found


def _windows(on: Subject, pool: PoolView) -> Iterator[str]:
    job = on.job
    ahead = [w for w in pool.windows if w.end > on.now and (job.deadline is None or w.start < job.deadline)]
    yield from few(
        (
            f"A reservation holds {some(len(w.places), 'processor')} from {on.at(w.start)} to {on.at(w.end)}."
            for w in ahead
        ),
        "more reserved windows",
    )


def _unanswered(on: Subject) -> Iterator[str]:
    job = on.job
    if job.state == "Waiting" and not job.message:
        yield (
            f"It has no answer yet, {span(max(0.0, on.now - job.created))} after its creation: the operator has not "
            "evaluated it. Normally an answer takes less than a second; if it does not come, see whether the operator "
            "runs."
        )
        return
    word = {"Measuring": "Its cost is being measured", "Suspended": "It is suspended"}
    yield said(word.get(job.state, "It has no promise"), job.reason, job.message)
    if job.state == "Measuring":
        yield f"Pilot chunks: {job.pilots} ended, {len(job.chunks)} under way."
        yield from _under_way(on)
    elif job.state == "Suspended":
        yield f"{job.done} of {some(job.units, 'unit')} are done and stay done."


def _promised(on: Subject) -> Iterator[str]:
    job = on.job
    admitted = job.conditions.get("Admitted")
    if job.deadline is None or job.end is None or job.processors is None:
        if admitted:
            yield said(f"Pool {job.pool} promised it", admitted.reason, admitted.message)
        return
    margin = "" if job.margin is None else f"; the plan had to end {span(job.margin)} before the deadline"
    statistical = admitted is not None and admitted.reason == reasons.ADMITTED_STATISTICALLY
    word = "admitted it, without a guarantee, for" if statistical else "promised"
    yield (
        f"Pool {job.pool} {word} {on.at(job.deadline)}. The forecast is {on.at(job.end)}, "
        f"{_distance(job.deadline - job.end)} the deadline{margin}."
    )
    yield from _headroom(on)
    if on.pool is not None and on.pool.schedule == "Utilization":
        yield "It has one pod, which shares a processor: its CPU limit moves so that it ends when its plan says."
    if on.pool is None or on.pool.schedule != "Exact":
        return
    discipline = on.pool.plan.timeline.discipline
    which = "the fewest that meet the deadline" if discipline.assign == "MN" else "all that let it end earlier"
    yield f"Its plan takes {some(job.processors, 'processor')}, {which}, from those that are free earliest."


def _headroom(on: Subject) -> Iterator[str]:
    """Tell why a plan takes longer than the cost says."""
    reserve = None if on.view is None else on.view.reserve(on.job.uid)
    if reserve and reserve.headroom:
        free = f"{100 * reserve.headroom:.3g}%"
        yield f"Plans leave {free} of each processor free, so that a slow chunk can catch up (headroom)."


def _distance(seconds: float) -> str:
    return f"{span(seconds)} before" if seconds >= 0 else f"{span(-seconds)} after"


def _ended(on: Subject) -> Iterator[str]:
    job = on.job
    in_time = "It is done" if job.guest else "It is done, in time"
    word = {"Completed": in_time, "Missed": "It is done, but late", "Failed": "It has failed"}[job.state]
    yield said(word, job.reason, job.message)
    track = job.conditions.get("OnTrack")
    if job.state != "Completed" and track and track.status == "False" and track.message != job.message:
        yield said("Its promise could not be kept", track.reason, track.message)
    if job.state == "Failed":
        yield f"{job.done} of {some(job.units, 'unit')} are done and stay in status.completed."
    yield from failures(job)


# What waits


def _waits(on: Subject) -> Iterator[str]:
    """Tell for what the job's planned chunks wait."""
    job, pool = on.job, on.view
    if pool is None:
        if job.promised and job.start is not None:
            yield f"Its first chunk is planned to start at {on.at(job.start)}."
        return
    work = [*pool.all_running(), *pool.all_planned()]
    planned = sorted(pool.planned(job.uid), key=lambda piece: (piece.start, piece.begin))
    yield from few((_wait(on, pool, piece, work) for piece in planned), "more chunks wait in the same way")
    if job.promised and job.start is not None and not planned and not pool.unplaced(job.uid):
        yield f"Its first chunk was planned to start at {on.at(job.start)}; no processor is planned for it now."
    left = pool.unplaced(job.uid)
    if left and pool.schedule == "Utilization":
        yield f"{some(left, 'unit')} wait until a node has memory and CPU for its pod beside those that run."
    elif left:
        yield (
            f"{some(left, 'unit')} wait in the pool's queue, where work that is due first starts first: they start as "
            "processors become free."
        )
    if job.reservation and planned:
        yield f"It runs only in the windows of Reservation {job.reservation}."


def _wait(on: Subject, pool: PoolView, piece: PlacedWork, work: Iterable[tuple[str, PlacedWork]]) -> str:
    what = "The reduce step starts" if piece.kind == "Reduce" else f"Units {piece.begin}-{piece.end} start"
    waits = f"{what} at {on.at(piece.start)}"
    before = [(other.until, uid, other) for uid, other in work if other.place == piece.place and other is not piece]
    earlier = [entry for entry in before if entry[0] <= piece.start + 1.0 and entry[2].start < piece.start]
    node = f"a processor of node {piece.place.node}"
    if piece.kind == "Reduce" and not earlier:
        return f"{waits}, when the last chunk has ended."
    last = max((until for until, *_ in earlier), default=on.now)
    window = max((w.end for w in pool.windows if piece.place in w.places and w.end <= piece.start + 1.0), default=0.0)
    if window > last:
        return f"{waits} on {node}, which a reservation holds until then."
    if earlier:
        until, uid, other = max(earlier)
        their = "the reduce step" if other.kind == "Reduce" else f"units {other.begin}-{other.end}"
        verb = "runs" if other.start <= on.now else "first runs"
        load = on.named(uid) if on.named(uid) == STRANGER else f"{their} of {on.named(uid)}"
        end = "until then" if abs(until - piece.start) < 1.0 else f"until {on.at(until)}"
        return f"{waits} on {node}, which {verb} {load} {end}."
    return f"{waits} on {node}."


# What runs


def _under_way(on: Subject) -> Iterator[str]:
    """Tell how far the chunks are: first those that are late, then those that have not started."""
    job = on.job
    if job.chunks:
        nodes = sorted({chunk.node for chunk in job.chunks})
        yield (
            f"{chunks_run(len(job.chunks))} on {some(len(nodes), 'node')}: {', '.join(nodes[:SHOWN])}"
            f"{f' and {len(nodes) - SHOWN} more' if len(nodes) > SHOWN else ''}; "
            f"{job.done} of {some(job.units, 'unit')} are done."
        )
    asleep = [text for chunk in job.chunks if (text := not_started(on, chunk))]
    yield from few(asleep, "more chunks have not started")
    slow = sorted(((late, text) for chunk in job.chunks for late, text in _behind(on, chunk)), reverse=True)
    yield from few((text for _, text in slow), "more chunks are behind their plan")
    again = [chunk for chunk in job.chunks if chunk.attempt > 1]
    if again:
        ranges = ", ".join(f"{chunk.begin}-{chunk.end}" for chunk in again[:SHOWN])
        more = f" and {len(again) - SHOWN} more ranges" if len(again) > SHOWN else ""
        yield f"Other chunks had units {ranges}{more} before: they ended, were lost or were cut without these units."
    yield from failures(job)


def _chunk(on: Subject, chunk: ChunkView) -> Iterator[str]:
    job = on.job
    what = what_of(chunk)
    yield (
        f"It is {what} of {job.namespace}/{job.name}, on node {chunk.node} since {on.at(chunk.created)}, by plan until "
        f"{on.at(chunk.planned_end)}."
    )
    yield _here(on, chunk)
    if text := not_started(on, chunk):
        yield text
    elif chunk.kind != "Reduce":
        yield f"It has reported {chunk.done} of {some(chunk.end - chunk.begin, 'unit')}."
    for _, text in _behind(on, chunk):
        yield text
    if chunk.late and not chunk.leftover:
        yield "It was not done at its planned end and got a later one; idle processors may take a part of its rest."


def _here(on: Subject, chunk: ChunkView) -> str:
    """Tell why the chunk runs on this node and began when it did."""
    job, node = on.job, chunk.node
    if chunk.attempt > 1:
        return (
            f"This is attempt {chunk.attempt}: an earlier chunk ended, was lost or was cut without these units, and a "
            f"processor of {node} was the earliest free for them."
        )
    if chunk.leftover:
        return f"A processor of {node} was idle. No promise holds it: {_ends_when(chunk)}"
    if chunk.kind == "Pilot":
        return f"It measures the cost of a unit on a free processor of {node}."
    if chunk.kind == "Reduce":
        return f"The reduce step runs where the last chunk has ended: on {node}."
    waited = chunk.created - job.created
    if waited < 5.0:
        return f"A processor of {node} was free when the job was promised, {span(max(0.0, waited))} after its creation."
    return f"It began {span(waited)} after the job's creation: by plan, this processor of {node} was free then."


def _behind(on: Subject, chunk: ChunkView) -> Iterator[tuple[float, str]]:
    """Yield by how much a chunk will end after its plan, and the arithmetic; nothing if it keeps the plan.

    The report is taken as `OLD` seconds old, so no chunk is called slow that may be on time.
    """
    job, size = on.job, chunk.end - chunk.begin
    if chunk.kind != "Chunk" or job.per_unit is None:
        return
    what = f"Units {chunk.begin}-{chunk.end} on node {chunk.node}, planned to end at {on.at(chunk.planned_end)},"
    spent = on.now - OLD - chunk.created - job.startup
    if chunk.done < LEAST or spent <= 0:
        if (over := on.now - chunk.planned_end) > OLD:
            yield over, f"{what} have reported {chunk.done} of {size}."
        return
    pace = spent / chunk.done
    end = on.now - OLD + (size - chunk.done) * pace
    factor = pace / job.per_unit
    late = end - chunk.planned_end
    if factor < OFF or (late <= 1.0 and not chunk.late and job.state != "Late"):
        return
    after = f", {span(late)} late" if late > 1.0 else ""
    text = (
        f"{what} have reported {chunk.done} of {size}: a unit takes {factor:.2g} times its cost of "
        f"{job.per_unit:.3g}s. At this pace they end at {on.at(end)}{after}."
    )
    yield late, text


# What is late


def _late(on: Subject) -> Iterator[str]:
    job = on.job
    waits = job.reason == reasons.NOT_STARTED
    yield said("Its pods do not start" if waits else "Its deadline cannot be kept", job.reason, job.message)
    if job.deadline is not None and job.end is not None:
        where = f"{_distance(job.deadline - job.end)} the deadline at {on.at(job.deadline)}"
        yield f"The forecast is {on.at(job.end)}, {where}."
    pool = on.view
    if pool is not None and (slowed := pool.slowed(job.uid)) >= OFF:
        yield f"Its units take {slowed:.2g} times the cost that was promised."
    next_step = "Another pod follows later." if waits else "It gets the processors that no promise needs."
    yield from _on_leftovers(on, next_step)
    if pool is not None:
        lost = [node for node in pool.nodes if node.reason and not node.processors]
        yield from few((f"Node {node.name} has no processors now: {node.reason}." for node in lost), "more nodes")
        yield f"The pool has {some(pool.processors, 'processor')} now, {pool.free} of them free."


def _on_leftovers(on: Subject, next_step: str) -> Iterator[str]:
    """Tell what a job without a promise has. ``next_step``: what follows if no chunk of it runs."""
    job = on.job
    leftover = [chunk for chunk in job.chunks if chunk.leftover]
    if leftover:
        yield f"{chunks_run(len(leftover))} on leftover capacity: {_ends_when(leftover[0])} Its finished units count."
    if not job.chunks:
        yield f"No chunk of it runs now, and {job.done} of {some(job.units, 'unit')} are done. {next_step}"


def _ends_when(leftover: ChunkView) -> str:
    """Tell what happens to a leftover chunk when its processor is needed. That of a Job has no pod of a known name."""
    if leftover.pod:
        return "when a promise needs the processor, the chunk is ended."
    return "nothing ends the pods of a Job, so each keeps its processor until it is done."
