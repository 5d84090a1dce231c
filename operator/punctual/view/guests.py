"""Explanations of guest jobs, which have no deadline, and of their chunks, which may leave their node at any time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean
from typing import Any, Final, NamedTuple

from punctual import reasons
from punctual.linger.history import STEP, History
from punctual.scheduling.model.wording import some, span
from punctual.view.history import spark
from punctual.view.jobs import ChunkView, JobView, moment
from punctual.view.subject import SHOWN, Subject, chunks_run, failures, few, not_started

DECISIONS: Final = frozenset({
    reasons.GUEST_STAYS,
    reasons.GUEST_PAUSED,
    reasons.GUEST_MOVES,
    reasons.GUEST_LEAVES,
    reasons.GUEST_PREVIEW,
})  # fmt: skip
WHAT: Final = (
    "It is a guest job: it has no deadline and no promise. Its chunks get only CPU that the nodes' own work leaves."
)
EACH: Final = 12
"""Steps of a node's history in a block of its curve: two minutes."""
_NEXT: Final = {
    "LingerLonger": "it goes on, and moves to a less busy node with room when that pays",
    "LingerForever": "it goes on, and never moves",
    "ImmediateEviction": "it hands back its units at once, and they move to an idle node with room or wait for one",
    "PauseAndMigrate": "it has its least CPU. After ten minutes it moves to an idle node with room",
}
"""What each policy does with a chunk when its node becomes busy."""


class Rules(NamedTuple):
    """How a pool treats its guests: ``spec.guests``."""

    policy: str = "LingerLonger"
    preview: bool = False


class DecisionView(NamedTuple):
    """The last decision about a chunk, as its pod's events tell it."""

    reason: str
    message: str
    at: float


def rules_of(pool: Mapping[str, Any]) -> Rules:
    """Read the rules of a Pool."""
    found = (pool.get("spec") or {}).get("guests") or {}
    return Rules(found.get("policy") or "LingerLonger", bool(found.get("preview")))


def last_decision(events: Iterable[Mapping[str, Any]]) -> DecisionView | None:
    """Return the newest decision among a pod's events; None: there is none, or it has expired."""
    found = [
        DecisionView(e["reason"], e.get("message") or "", _time(e)) for e in events if e.get("reason") in DECISIONS
    ]
    return max(found, key=lambda one: one.at, default=None)


def _time(event: Mapping[str, Any]) -> float:
    """Return when an event was last seen."""
    written = (event.get("metadata") or {}).get("creationTimestamp")
    times = ((event.get("series") or {}).get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return max((at for text in (*times, written) if (at := moment(text)) is not None), default=0.0)


def guest_job(on: Subject) -> Iterator[str]:
    """Explain a guest job that is not refused: how much of it is done, and where the rest is."""
    job = on.job
    yield WHAT
    yield _done(job)
    if job.chunks:
        where = Counter(chunk.node for chunk in job.chunks).most_common()
        on_nodes = ", ".join(f"{count} on {node}" for node, count in where[:SHOWN])
        more = f", {sum(count for _, count in where[SHOWN:])} on other nodes" if len(where) > SHOWN else ""
        yield f"{chunks_run(len(job.chunks))}: {on_nodes}{more}."
    elif not job.suspend:
        yield "No chunk of it runs: one starts when a node of its pool has CPU and memory to spare, idle nodes first."
    if job.suspend:
        rest = "its chunks hand back what they have not begun, and none" if job.chunks else "no chunk"
        yield f"It is suspended (spec.suspend): {rest} starts."
    asleep = [text for chunk in job.chunks if (text := not_started(on, chunk))]
    yield from few(asleep, "more chunks have not started")
    yield from failures(job)


def _done(job: JobView) -> str:
    """Tell how the units are divided."""
    owned = sum(max(0, chunk.end - chunk.begin - chunk.done) for chunk in job.chunks)
    rest = max(0, job.units - job.done - owned)
    held = f"{owned} more are in the chunks that run, " if job.chunks else ""
    work = f" ({span(rest * job.per_unit)} of CPU)" if rest and job.per_unit is not None else ""
    return f"{job.done} of {some(job.units, 'unit')} are done; {held}{rest}{work} wait for a chunk."


def guest_chunk(on: Subject, chunk: ChunkView, told: DecisionView | None, rules: Rules | None) -> Iterator[str]:
    """Explain a guest's chunk: where it is, what it gets, what was decided about it last, and what may come next.

    ``rules``: those of its pool; None: they are not known.
    """
    job = on.job
    yield (
        f"It is units {chunk.begin}-{chunk.end} of {job.namespace}/{job.name}, a guest job without a deadline, on node "
        f"{chunk.node} since {on.at(chunk.created)}."
    )
    again = " Another chunk had these units before: it ended, was lost or moved." if chunk.attempt > 1 else ""
    yield f"When it started, {chunk.node} had CPU and memory to spare.{again}"
    yield (
        f"It has the lowest CPU priority of {chunk.node}: it gets only CPU that the node's own work leaves, and shares "
        "that with the other guests there."
    )
    if text := not_started(on, chunk):
        yield text
    else:
        yield f"It has reported {chunk.done} of {some(chunk.end - chunk.begin, 'unit')}."
    yield decided(on, told)
    if rules is not None and (told is None or told.reason not in {reasons.GUEST_MOVES, reasons.GUEST_LEAVES}):
        preview = " The pool is in preview: this is told, and not done." if rules.preview else ""
        yield f"Policy {rules.policy}: while its node is busy, {_NEXT.get(rules.policy, 'it may move')}.{preview}"


def decided(on: Subject, told: DecisionView | None) -> str:
    """Quote the last decision about a chunk."""
    if told is None:
        return (
            "Its pod has no event of a decision: its node has not become busy since, or the event has expired "
            "(usually after an hour)."
        )
    return f"The last decision, at {on.at(told.at)}, was {told.reason}: {told.message}"


def lately(node: str, history: History, now: float) -> str:
    """Tell what a node's own work and its guests used in the last hour, and how long the node was busy before.

    Empty: there is nothing to tell yet.
    """
    hosts = history.hosts.last(now, EACH)
    while hosts and hosts[0] is None:
        del hosts[0]
    told = []
    if len(hosts) > 1:
        guests = history.guests.last(now, EACH)[-len(hosts) :]
        most = max(use for use in hosts if use is not None)
        told.append(
            f"In the last {span(len(hosts) * EACH * STEP)}, the own work of node {node} used {spark(hosts, 1.0)} of it "
            f"({span(EACH * STEP)} a block, {_mean(hosts):.0%} on average, {most:.0%} at most), guests "
            f"{_mean(guests):.0%}."
        )
    if history.episodes:
        took = ", ".join(f"{span(one.length)} at {one.use:.0%}" for one in reversed(history.episodes))
        told.append(f"Busy times of {node} before, the newest first: {took}.")
    return " ".join(told)


def _mean(values: Iterable[float | None]) -> float:
    return fmean(value for value in values if value is not None)
