"""``punctual why``: explains the state of a job, a pod or a TargetRate, from what the API server holds.

This module reads and prints; :mod:`punctual.view.why` explains.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from punctual.cli.cluster_state import ClusterState
from punctual.cli.kubectl import Call
from punctual.cli.program import similar
from punctual.cli.screen import STYLES
from punctual.errors import ClusterError, PunctualError
from punctual.kube.snapshot import Snapshot
from punctual.scheduling.view import PoolView
from punctual.view.changes import Json
from punctual.view.guests import DecisionView, last_decision, rules_of
from punctual.view.jobs import JobView, PodView, job_of, pod_of
from punctual.view.rates import rate_of, why_rate
from punctual.view.why import why, why_chunk, why_guest_chunk, why_over

STYLE: Mapping[str, str] = {str(state): style for state, style in STYLES.items()}
"""Of states of jobs; pods have others."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is explained, its state, and why."""

    what: str
    state: str
    sentences: tuple[str, ...]
    unread: tuple[str, ...]
    """What the explanation leaves out, and why."""

    def document(self) -> Json:
        """Return the explanation as JSON."""
        found: Json = {"name": self.what, "state": self.state, "why": list(self.sentences)}
        return found | ({"unread": list(self.unread)} if self.unread else {})


def explain(name: str, *, state: ClusterState, pods: Call, events: Call, now: float) -> Explanation:
    """Explain a job, or the pod of a chunk.

    ``pods``: the pods of chunks of the namespace, ``events``: those of objects of this name, while kubectl reads them.
    Raises PunctualError with similar names if there is none of this name.
    """
    namespace = state.namespace()
    found = state.objects(None, {namespace})
    snapshot = Snapshot.of(found.bodies)
    bodies = {body["metadata"]["name"]: body for body in snapshot.jobs if body["metadata"]["namespace"] == namespace}
    seen, unread = _pods(pods)
    jobs = {one: job_of(body) for one, body in bodies.items()}
    names = {job.uid: f"{job.namespace}/{job.name}" for job in map(job_of, snapshot.jobs)}
    job = jobs.get(name) or _job_of_pod(name, jobs.values(), seen)
    if job is None:
        known = [*jobs, *seen, *(chunk.pod for one in jobs.values() for chunk in one.chunks)]
        raise PunctualError(f"namespace {namespace} has no job and no chunk's pod {name}{similar(name, known)}")
    pool, more = _pool(snapshot, job, namespace, now=now, whole=found.whole)
    left_out = (*more, *unread)
    if job.name == name and name in jobs:
        return Explanation(f"{namespace}/{name}", job.state, why(job, pool, now, names, seen), left_out)
    chunk = next((one for one in job.chunks if one.pod == name), None)
    pod = seen.get(name)
    if job.guest:
        decision, unheard = _decision(events)
        left_out = (*unread, *unheard)
        if chunk is not None:
            rules = rules_of(snapshot.pools[job.pool]) if job.pool in snapshot.pools else None
            told = why_guest_chunk(job, chunk, now, told=decision, rules=rules, pod=pod)
        else:
            assert pod is not None
            told = why_over(job, pod, now, decision)
        return Explanation(f"{namespace}/{name}", pod.phase if pod else "Unknown", told, left_out)
    if chunk is not None:
        told = why_chunk(job, chunk, pool, now, names, pod)
        return Explanation(f"{namespace}/{name}", pod.phase if pod else "Unknown", told, left_out)
    assert pod is not None
    return Explanation(f"{namespace}/{name}", pod.phase, why_over(job, pod, now), left_out)


def explain_rate(name: str, rates: Call, *, now: float) -> Explanation:
    """Explain a TargetRate. ``rates``: those of its namespace, while kubectl reads them.

    Raises PunctualError with similar names if there is none of this name.
    """
    found = {body["metadata"]["name"]: body for body in json.loads(rates.answer())["items"]}
    if name not in found:
        raise PunctualError(f"there is no TargetRate {name}{similar(name, found)}")
    rate = rate_of(found[name])
    return Explanation(f"{rate.namespace}/{name}", rate.state, why_rate(rate, now), ())


def _pods(call: Call) -> tuple[dict[str, PodView], tuple[str, ...]]:
    try:
        found = json.loads(call.answer())
    except ClusterError:
        return {}, ("the pods of its chunks were not read: you may not list pods",)
    pods = (pod for body in found.get("items") or () if (pod := pod_of(body)))
    return {pod.name: pod for pod in pods}, ()


def _decision(call: Call) -> tuple[DecisionView | None, tuple[str, ...]]:
    try:
        found = json.loads(call.answer())
    except ClusterError:
        return None, ("what was decided about it was not read: you may not list events",)
    return last_decision(found.get("items") or ()), ()


def _job_of_pod(name: str, jobs: Iterable[JobView], pods: dict[str, PodView]) -> JobView | None:
    uid = pods[name].job if name in pods else None
    return next((job for job in jobs if job.uid == uid or any(chunk.pod == name for chunk in job.chunks)), None)


def _pool(
    snapshot: Snapshot, job: JobView, namespace: str, *, now: float, whole: bool
) -> tuple[PoolView | None, tuple[str, ...]]:
    """Return the job's pool, rebuilt, or why it is not known. A guest's explanation needs none."""
    if job.guest:
        return None, ()
    if not whole:
        text = (
            f"only jobs of namespace {namespace} were read: you may not read others. So what the pool's processors do, "
            "and what is promised on them, is left out"
        )
        return None, (text,)
    if job.pool not in snapshot.pools:
        return None, ()
    try:
        return snapshot.pool(job.pool, now=now).view(), ()
    except PunctualError as error:
        return None, (f"the plan of the pool is left out: {error}",)


def lines(found: Explanation) -> Iterator[tuple[str, str]]:
    """Yield sentences and notes, each with its style."""
    yield from ((text, "") for text in found.sentences)
    yield from ((f"({text}.)", "yellow") for text in found.unread)


def show(found: Explanation, console: Console) -> None:
    """Print an explanation. On a terminal, lines are broken between words; in a pipe, a sentence is a line."""
    if console.is_terminal:
        console.print(*parts(found), sep="\n")
        return
    print(f"{found.what}  {found.state}", *(f"  {text}" for text, _ in lines(found)), sep="\n")


def parts(found: Explanation) -> Iterator[RenderableType]:
    """Yield what a terminal shows."""
    state = Text(found.state, STYLE.get(found.state, "bold"))
    yield Text.assemble((found.what, "bold"), "  ", state)
    for text, style in lines(found):
        yield Padding(Text(text, style), (0, 0, 0, 2))
