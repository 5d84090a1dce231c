"""The check of a run.

Compares requests with observations and finds violations. No I/O; a test checks it with forgeries.

For each job: accounted units stay accounted and belong to nothing else, each range is in the status before its pod
exists, the epoch never falls, the promise changes by an edit only, results cover each unit once with the units' correct
sum, and a promise that was not kept had a reported reason and a fault that caused it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lib.testbed import condition

from chaos_lib.jobs import Json, Wish
from chaos_lib.scribe import JobSeen, PodSeen
from punctual.notation.duration import parse_time

TOLD = frozenset({
    "CapacityLost", "ChunkFailed", "Late", "NodeLost", "NotStarted", "Overrun", "PodFitsNoNode", "PodRefused",
    "Stalled",
})  # fmt: skip
"""Reasons by which Punctual says that a promise is in danger or given up."""
EXCUSED = frozenset({"InfeasibleCapacity", "InfeasibleStartup", "PodRefused"})
"""Reasons to refuse any job: there may be no room, or a quota in the way."""
LONGEST = 60.0
"""Seconds that one leader may have for the account of a pod that has ended, from its first word to its last.

Half of it is the wait for a last word that an agent had no time to say: each leader counts that from its own beginning.
"""
MUTE = {"kubelet stopped", "node paused"}
"""Faults in which a kubelet says nothing of its pods: why one does not start is then seen as it is given up."""
ROUNDING = 1.5
"""Seconds: times in a status are whole ones."""


@dataclass(frozen=True)
class Struck:
    """A fault that happened."""

    name: str
    begin: float
    end: float
    disturbs: bool
    silences: bool = False
    """Whether no leader could hear or say anything meanwhile."""


@dataclass(frozen=True)
class Broken:
    """A promise that was not kept."""

    job: str
    late: float
    told: tuple[str, ...]
    faults: tuple[str, ...]


def missed(
    wishes: Mapping[str, Wish],
    jobs: Iterable[JobSeen],
    faults: Iterable[Struck],
    events: Mapping[str, Iterable[str]],
) -> list[Broken]:
    """Return the promises that were not kept; ``events``: reasons of a job's events, by uid."""
    faults = list(faults)
    found = []
    for job in jobs:
        if not _counts(wishes, job):
            continue
        late = parse_time(job.status["finishTime"]) - parse_time(job.status["promise"]["deadline"])
        if late <= 0 and job.condition("Failed").get("status") != "True":
            continue
        told = _told(job, events)
        during = {fault.name for fault in _during(job, faults) if fault.disturbs}
        found.append(Broken(job.name, late, tuple(sorted(told & TOLD)), tuple(sorted(during))))
    return found


def promises(wishes: Mapping[str, Wish], jobs: Iterable[JobSeen]) -> int:
    """Return how many promises there were to keep."""
    return sum(_counts(wishes, job) for job in jobs)


def _counts(wishes: Mapping[str, Wish], job: JobSeen) -> bool:
    """Whether a job has ended that was promised, and could be done."""
    wish = wishes.get(job.name)
    if job.gone or wish is None or wish.expected in ("failed", "either"):
        return False
    return bool(job.status.get("promise") and job.status.get("finishTime"))


def untold(
    wishes: Mapping[str, Wish],
    jobs: Iterable[JobSeen],
    events: Mapping[str, Iterable[str]],
    faults: Iterable[Struck] = (),
) -> list[str]:
    """Return the jobs that failed without the reason which must be reported before."""
    mute = [fault for fault in faults if fault.name in MUTE]
    return [
        f"{job.name}: failed, and {wish.told} was never told"
        for job in jobs
        if (wish := wishes.get(job.name)) and job.condition("Failed").get("status") == "True"
        if wish.told and wish.told not in _told(job, events) and not _during(job, mute)
    ]


def _during(job: JobSeen, faults: Iterable[Struck]) -> list[Struck]:
    """Return the faults in the life of a job that has ended."""
    begin = parse_time(job.body["metadata"]["creationTimestamp"]) - ROUNDING
    end = parse_time(job.status["finishTime"]) + ROUNDING
    return [fault for fault in faults if fault.begin <= end and fault.end >= begin]


def _told(job: JobSeen, events: Mapping[str, Iterable[str]]) -> set[str]:
    """Return all reasons of OnTrack=False and of events that a job has had."""
    on_track = (condition(status, "OnTrack") for _, status in job.statuses)
    return {c["reason"] for c in on_track if c.get("status") == "False"}.union(
        events.get(job.body["metadata"]["uid"], ())
    )


def audit(
    wishes: Mapping[str, Wish], jobs: Iterable[JobSeen], pods: Iterable[PodSeen], faults: Iterable[Struck] = ()
) -> list[str]:
    """Return all that must not be."""
    jobs = list(jobs)
    reigns, silences = _reigns(jobs), [fault for fault in faults if fault.silences]
    wrong: list[str] = []
    by_job: dict[str, list[PodSeen]] = {}
    for pod in pods:
        by_job.setdefault(pod.job, []).append(pod)
    seen = set()
    for job in jobs:
        wish = wishes.get(job.name)
        if wish is None:
            wrong.append(f"{job.name}: it was not asked for")
            continue
        seen.add(job.name)
        own = by_job.get(job.body["metadata"]["uid"], [])
        for check in (_history, _promise, _pods, _twice, _end):
            wrong += [f"{job.name}: {what}" for what in check(wish, job, own)]
        wrong += [f"{job.name}: {what}" for what in _late(job, own, reigns, silences)]
    unseen = sorted(wishes.keys() - seen)
    # a Job may be deleted before it has a DivisibleJob
    wrong += [f"{name}: was asked for and never seen" for name in unseen if not _may_be_unseen(wishes[name])]
    return wrong


def _may_be_unseen(wish: Wish) -> bool:
    return wish.deleted and wish.created is not None


def _reigns(jobs: list[JobSeen]) -> list[tuple[float, float]]:
    """Return of each epoch the times of its first and its last word, about whatever job."""
    words: dict[int, list[float]] = {}
    for job in jobs:
        for at, (_, status) in zip(job.times, job.statuses, strict=True):
            words.setdefault(status.get("epoch", 0), []).append(at)
    return [(min(times), max(times)) for times in words.values()]


def _history(wish: Wish, job: JobSeen, _pods: list[PodSeen]) -> Iterable[str]:
    """Check each status as it was written."""
    before: set[int] = set()
    epoch = 0
    for version, status in job.statuses:
        at = f"in the status of version {version}"
        completed = _units(status.get("completed") or (), wish.units)
        if lost := before - completed:
            yield f"units {_short(lost)} were accounted and are not {at}"
        before = completed
        taken: set[int] = set()
        for chunk in status.get("chunks") or ():
            if chunk.get("kind") == "Reduce":
                continue
            own = _units([chunk], wish.units)
            if twice := own & (completed | taken):
                yield f"units {_short(twice)} are two owners' {at}"
            taken |= own
        now = int(status.get("epoch") or 0)
        if now < epoch:
            yield f"the epoch falls from {epoch} to {now} {at}"
        epoch = max(epoch, now)
        if (status.get("units") or {}).get("done", 0) > wish.units:
            yield f"more units are done than there are {at}"


def _promise(wish: Wish, job: JobSeen, _pods: list[PodSeen]) -> Iterable[str]:
    """Check that what was promised is what was asked, at some time, and can be."""
    created = wish.created or parse_time(job.body["metadata"]["creationTimestamp"])
    for promised in {s["promise"]["deadline"] for _, s in job.statuses if "promise" in s}:
        after = parse_time(promised) - created
        if not any(abs(after - asked) <= ROUNDING for asked in wish.deadlines):
            yield f"promised for {after:.0f} s after its creation, asked were {wish.deadlines}"
        if wish.expected == "refused":
            yield f"promised, though it cannot run: {wish.reasons}"


def _pods(_wish: Wish, job: JobSeen, pods: list[PodSeen]) -> Iterable[str]:
    """Check that each pod was in the status before it was there."""
    if job.gaps:
        return
    for pod in pods:
        begin, _ = pod.range
        if pod.born is None:
            continue
        recorded = (
            chunk.get("pod") == pod.name or (pod.of_job and (chunk["begin"], chunk["attempt"]) == (begin, pod.attempt))
            for version, status in job.statuses
            if version < pod.born or pod.of_job  # it waited at the gate before it was a chunk's
            for chunk in status.get("chunks") or ()
        )
        if not any(recorded):
            yield f"pod {pod.name} was there before it was in the status"


def _twice(_wish: Wish, _job: JobSeen, pods: list[PodSeen]) -> Iterable[str]:
    """Check that no attempt or index which ended well was made again, unless its pod was taken away unseen."""
    well: set[str] = set()
    for pod in pods:
        which = f"index {pod.range[0]}" if pod.of_job else f"pod {pod.name}"
        if which in well:
            yield f"{which} ended well, and there was another of that name"
        if pod.succeeded and not pod.deleted:
            well.add(which)


def _late(
    job: JobSeen, pods: list[PodSeen], reigns: list[tuple[float, float]], silences: list[Struck]
) -> Iterable[str]:
    """Check that what ended well was taken in before long: no leader could have done it and did not."""
    seen = list(zip(job.times, (status for _, status in job.statuses), strict=True))
    for pod in pods:
        if pod.succeeded is None or pod.deleted:
            continue
        owned = [at for at, status in seen if pod.name in _owners(status)]
        taken = next((at for at, status in seen if at >= pod.succeeded and pod.name not in _owners(status)), None)
        if not owned or taken is None:
            continue
        for first, last in reigns:
            begin, end = max(first, pod.succeeded), min(last, taken)
            silent = sum(max(0.0, min(end, f.end) - max(begin, f.begin)) for f in silences)
            if end - begin - silent > LONGEST:
                yield f"pod {pod.name} ended well, and was taken in {taken - pod.succeeded:.0f} s later"
                break


def _owners(status: Json) -> set[str]:
    return {str(chunk.get("pod")) for chunk in status.get("chunks") or ()}


def _end(wish: Wish, job: JobSeen, pods: list[PodSeen]) -> Iterable[str]:
    """Check what became of it."""
    if job.gone:
        if not wish.deleted:
            yield "it is gone, but was not deleted"
        yield from (f"pod {pod.name} outlives it" for pod in pods if not pod.gone and not pod.of_job)
        return
    if wish.deleted:
        yield "it was deleted and is still there"
        return
    yield from _outcome(wish, job, pods)
    for pod in pods:
        if not pod.gone and not _stays(pod):
            yield f"pod {pod.name} ({pod.kind}, {pod.phase}) is still there"


def _outcome(wish: Wish, job: JobSeen, pods: list[PodSeen]) -> Iterable[str]:
    completed, failed, admitted = (job.condition(kind) for kind in ("Completed", "Failed", "Admitted"))
    if completed.get("status") == "True":
        if wish.expected not in ("done", "either"):
            yield f"done, though it cannot be: {completed['message']}"
        yield from _accounts(wish, job, pods)
    elif failed.get("status") == "True":
        may = wish.expected in ("failed", "either") and failed["reason"] in wish.reasons
        if not may or wish.words not in failed["message"]:
            yield f"failed by {failed['reason']}: {failed['message']}"
    elif admitted.get("status") == "False":
        excused = wish.excused and admitted["reason"] in EXCUSED
        words = wish.words if wish.expected == "refused" else ""
        if not excused and (admitted["reason"] not in wish.reasons or words not in admitted["message"]):
            yield f"refused by {admitted['reason']}: {admitted['message']}"
        if wish.expected == "refused":
            yield from (f"pod {pod.name} was there, though it was refused" for pod in pods)
    else:
        yield f"it has not ended: {admitted.get('reason')}, {job.status.get('units')}, {job.status.get('chunks')}"


def _stays(pod: PodSeen) -> bool:
    """Whether a pod is kept to be read, or until its Job goes."""
    kept = pod.of_job or pod.kind == "Reduce"
    return pod.phase == "Failed" or (kept and pod.phase == "Succeeded")


def _accounts(wish: Wish, job: JobSeen, pods: list[PodSeen]) -> Iterable[str]:
    """Check a job that is said to be done."""
    status = job.status
    units = wish.units if wish.created is None else job.body["spec"]["units"]  # a second promise may have fewer
    whole = [{"begin": 0, "end": units}]
    if status.get("completed") != whole:
        yield f"done, but accounted is {status.get('completed')} of {units}"
    if status.get("units", {}).get("done") != units or status.get("chunks"):
        yield f"done, but its status has {status.get('units')} and chunks {status.get('chunks')}"
    redo = wish.body["spec"].get("restart", "Redo") == "Redo"
    if "reduce" in wish.body["spec"]:
        # one that was lost may have come to its end all the same: it is not kept
        results = [pod for pod in pods if pod.kind == "Reduce" and pod.phase == "Succeeded" and not pod.gone]
        if len(results) != 1:
            yield f"done, but {len(results)} reduce pods are there that ended well"
            return
        yield from _results(wish, results[0].message, redo=redo)
    elif redo and not job.gaps and wish.created is None:
        worked = _units(({"begin": p.range[0], "end": p.range[1]} for p in pods if p.succeeded), wish.units)
        if missing := _units(whole, wish.units) - worked:
            yield f"done, but no pod that ended well had units {_short(missing)}"


def _results(wish: Wish, text: str, *, redo: bool) -> Iterable[str]:
    at = 0
    for line in text.splitlines():
        match = re.fullmatch(r"(\d+)-(\d+) ?(\d*)", line)
        if match is None:
            yield f"the reduce step found {line!r}"
            return
        begin, end, said = int(match[1]), int(match[2]), match[3]
        if begin != at:
            yield f"the reduce step found units from {begin} on where {at} was next"
        at = end
        adds = (begin + end - 1) * (end - begin) // 2
        # what was durable when its pod ended has no result
        if said != str(adds) and (redo or said):
            yield f"units {begin}-{end} add up to {adds}, their result is {said!r}"
    if at != wish.units:
        yield f"the reduce step found {at} of {wish.units} units"


def _units(ranges: Iterable[Json], units: int) -> set[int]:
    # jobs of millions of units are refused: nothing of them is ever owned
    return {u for r in ranges for u in range(int(r["begin"]), min(int(r["end"]), units + 1))}


def _short(units: set[int]) -> str:
    return f"{min(units)}…{max(units)} ({len(units)})"
