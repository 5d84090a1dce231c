"""Observations of the modelled cluster, as the Pool gets them: nodes of one processor, pods, reports of agents."""

from punctual.scheduling.model.events import NodeObserved, PodObserved, PodPhase, Progress, Reported
from punctual.sim.cluster import Running
from punctual.sim.options import Options

NAMESPACE = "simulated"


def node_name(p: int, options: Options) -> str:
    """Return the name of the node that stands for a processor."""
    return f"{p:0{len(str(options.processors - 1))}d}"


def node(p: int, options: Options) -> NodeObserved:
    """Return what is observed of that node."""
    speed = options.speeds[p] if options.speeds else 1.0
    return NodeObserved(name=node_name(p, options), ready=True, cpu=1.0, memory=0, speed=speed)


def pod(running: Running, phase: PodPhase) -> PodObserved:
    """Return what is observed of the pod of a chunk."""
    chunk, name = running.chunk, running.name
    key = chunk.kind, chunk.begin, chunk.origin, chunk.attempt
    # positional arguments: one call for each chunk
    return PodObserved(name, name, NAMESPACE, running.job, *key, chunk.node, phase, chunk.created)


def progress(running: Running, done: int, end: int | None = None, *, over: bool = False) -> Reported:
    """Return the report of an agent on one chunk; ``end``: the answer to an offer."""
    seen = Progress(pod=running.name, done=done, end=end, cpu_seconds=float(done), over=over)
    return Reported(running.chunk.node, (seen,))
