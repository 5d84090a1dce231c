"""What is explained, what is known beside it, and the sentences that explanations of all kinds of jobs share."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from punctual.notation.duration import format_time
from punctual.scheduling.model.wording import span
from punctual.scheduling.view import PoolView
from punctual.view.jobs import ChunkView, JobView, PodView

STRANGER: Final = "a job of another namespace"
SHOWN: Final = 5
"""Maximum sentences of one kind: chunks, other jobs, nodes, windows."""
NEAR: Final = 12 * 3600.0
"""Seconds from now within which a time is written without its date."""
NO_PODS: Final[Mapping[str, PodView]] = {}


class Subject(NamedTuple):
    """What is explained, and what is known beside it."""

    job: JobView
    pool: PoolView | None
    now: float
    names: Mapping[str, str]
    pods: Mapping[str, PodView]

    def at(self, moment: float) -> str:
        """Write a time (without its date if that is clear), and how far it is from now."""
        left = moment - self.now
        text = format_time(round(moment))
        shown = text.partition("T")[2] if abs(left) < NEAR else text
        return f"{shown} ({f'in {span(left)}' if left >= 0 else f'{span(-left)} ago'})"

    def named(self, uid: str) -> str:
        """Return what to call a job."""
        return "this job" if uid == self.job.uid else self.names.get(uid, STRANGER)

    @property
    def view(self) -> PoolView | None:
        """The pool, if it knows the job."""
        return self.pool if self.pool is not None and self.job.uid in self.pool.jobs else None


def chunks_run(chunks: int) -> str:
    """Count chunks."""
    return "1 chunk runs" if chunks == 1 else f"{chunks} chunks run"


def failures(job: JobView) -> Iterator[str]:
    """Tell how often work has failed."""
    if job.failures:
        times = "once" if job.failures == 1 else f"{job.failures} times"
        yield f"A chunk of it has failed {times} by its own fault: kubectl describe dj {job.name} shows the events."


def what_of(chunk: ChunkView) -> str:
    """Name a chunk by its work."""
    if chunk.kind == "Reduce":
        return "the reduce step"
    return f"units {chunk.begin}-{chunk.end}" + (" (pilot)" if chunk.kind == "Pilot" else "")


def not_started(on: Subject, chunk: ChunkView) -> str | None:
    """Return why a chunk's program has not started; None: it has, or nothing is known."""
    pod, what = on.pods.get(chunk.pod), what_of(chunk)
    since = span(max(0.0, on.now - chunk.created))
    if pod is None or pod.started is not None or pod.phase != "Pending":
        return None
    image = " The image cannot be pulled; another pod tries again later." if "Image" in pod.waiting else ""
    told = pod.waiting or ("the scheduler has not placed it" if not pod.node else "its containers are being created")
    return f"Pod {chunk.pod} ({what}, node {chunk.node}) has not started after {since}: {told}.{image}"


def few(sentences: Iterable[str], what: str) -> Iterator[str]:
    """Yield the first sentences, and the number of the others."""
    told = list(sentences)
    yield from told[:SHOWN]
    if len(told) > SHOWN:
        yield f"And {len(told) - SHOWN} {what}."
