"""Bars of chunks on processors, from a record of a watch.

The API server does not number processors, so the bars of a node are put into as few rows as they need, in order of
creation. Each chunk has a whole processor, so the rows are right but for their order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from punctual.errors import PunctualError
from punctual.view.changes import SeenChange
from punctual.view.jobs import Board, ChunkView, JobView, PodView


@dataclass(frozen=True, slots=True)
class Bar:
    """The life of a pod. Times in seconds since 1970."""

    job: str
    """The job's uid."""
    label: str
    kind: str
    node: str
    row: int
    """Index among the node's rows."""
    created: float
    started: float | None
    """When its container started. None: no start was seen."""
    ended: float
    planned_end: float | None
    failed: bool


@dataclass(frozen=True, slots=True)
class TimelineView:
    """Jobs in the order of creation, and the bars of their chunks."""

    jobs: tuple[JobView, ...]
    bars: tuple[Bar, ...]
    rows: tuple[tuple[str, int], ...]
    """Nodes by name, with the number of their rows."""
    begin: float
    end: float
    promised: dict[str, float]
    """The finish that was forecast when a job was promised, by its uid."""


def timeline(record: Iterable[SeenChange], names: Sequence[str] = ()) -> TimelineView:
    """Read a record; ``names``: only these jobs."""
    board = Board()
    ever: dict[str, JobView] = {}
    over: dict[str, float] = {}  # by pod: when its end was first seen
    last = 0.0
    for seen in record:
        last = seen.time
        board.apply([seen.change])
        ever.update(board.jobs)
        if seen.change.kind == "Pod":
            uid = seen.change.body["metadata"]["uid"]
            pod = board.pods.get(uid)
            if pod and (pod.phase in {"Succeeded", "Failed"} or seen.change.what == "DELETED"):
                over.setdefault(uid, seen.time)
    jobs = [job for job in ever.values() if not names or job.name in names]
    jobs.sort(key=lambda job: (job.created, job.start or job.created, job.name))
    if not jobs:
        raise PunctualError(f"the record has no job{' ' + ', '.join(names) if names else ''}")
    wanted = {job.uid for job in jobs}
    pods = sorted(
        (p for p in board.pods.values() if p.job in wanted and p.node),
        key=lambda p: (_created(p, board.planned), p.begin),
    )
    begin = min([job.created for job in jobs] + [p.created for p in pods])
    ends = [job.finished or last for job in jobs] + [
        job.deadline for job in jobs if job.deadline is not None and job.kept
    ]
    bars, rows = _rows(pods, board.planned, over, last)
    return TimelineView(tuple(jobs), bars, rows, begin, max(ends), dict(board.first_finish))


def _created(pod: PodView, planned: dict[str, ChunkView]) -> float:
    """Return when a pod was created: from the job's status if it is there, as the pod's own time has whole seconds."""
    chunk = planned.get(pod.name)
    return chunk.created if chunk else pod.created


def _rows(
    pods: Sequence[PodView], planned: dict[str, ChunkView], over: dict[str, float], last: float
) -> tuple[tuple[Bar, ...], tuple[tuple[str, int], ...]]:
    free: dict[str, list[float]] = {}  # by node: the end of each row's last bar
    bars = []
    for pod in pods:
        created = _created(pod, planned)
        chunk = planned.get(pod.name)
        # kubelets report whole seconds; the time at which the end was seen is finer and at most a little late
        ended = max(created, over.get(pod.uid, last))
        if pod.finished is not None:
            ended = max(created, min(ended, pod.finished + 1.0))
        started = None if pod.started is None else min(max(pod.started, created), ended)
        lines = free.setdefault(pod.node, [])
        row = next((i for i, until in enumerate(lines) if until <= created + 0.05), len(lines))
        if row == len(lines):
            lines.append(0.0)
        lines[row] = ended
        label = "reduce" if pod.kind == "Reduce" else f"{pod.begin}-{pod.end}"
        bars.append(
            Bar(
                pod.job, label, pod.kind, pod.node, row, created, started, ended,
                chunk.planned_end if chunk and chunk.kind != "Guest" else None, pod.phase == "Failed",
            )
        )  # fmt: skip
    return tuple(bars), tuple((node, len(free[node])) for node in sorted(free))
