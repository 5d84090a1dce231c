"""Why processors of a pool are missing, in words: for its condition Ready and for refusals. It decides nothing."""

from collections.abc import Iterable

from punctual.scheduling.model.events import NodeObserved
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.processors import Processors
from punctual.scheduling.model.resources import Resources
from punctual.scheduling.model.wording import amount, listed, some, span

SHOWN = 3
"""Nodes that a message names."""


def why_none(processors: Processors, spec: PoolSpec) -> str:
    """Return why a pool has no processor."""
    nodes = processors.nodes.values()
    if not nodes:
        return "no node has the labels that spec.nodeSelector asks for"
    usable = [n for n in nodes if n.ready and n.left_out is None and n.name not in processors.closed]
    if not usable:
        return f"{some(len(nodes), 'node')} selected, none of them ready and free to use: see status.nodes"
    return (
        f"no node has capacity for a processor of {listed(_amounts(spec.processor, spec))}: beside other pods, "
        f"{_left(usable, spec)}"
    )


def scarcest(processors: Processors, spec: PoolSpec) -> str:
    """Return which resource limits the number of a pool's processors, if those have more than CPU and memory."""
    found = processors.scarcity.scarcest() if spec.others else None
    return f"the scarcest on its nodes is {found[0]}, enough for {some(found[1], 'processor')}" if found else ""


def closed(processors: Processors, spec: PoolSpec, now: float) -> str:
    """Return why work cannot be planned on some of a pool's processors, or on all; empty: it can on all of them."""
    if not any(processors.whole.values()):
        return f"the pool has no processor, because {why_none(processors, spec)}"
    blocked = {node: until for node, until in processors.blocked_until.items() if until > now}
    if not blocked:
        return ""
    counts, taken = processors.whole, processors.taken()
    free = {node: free for node in sorted(blocked) if (free := max(0, counts.get(node, 0) - taken.get(node, 0)))}
    if not free:
        return ""
    longest = span(max(blocked[node] for node in free) - now)
    which = f"{sum(free.values())} of the pool's {some(processors.total, 'processor')}"
    verb = "is" if sum(free.values()) == 1 else "are"
    where = f"{_names(free)}, where no new pod is created for another {longest} at most"
    return f"{which} {verb} free on {where}: one could not be placed there"


def _names(nodes: Iterable[str]) -> str:
    names = list(nodes)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{'node' if len(names) == 1 else 'nodes'} {', '.join(names[:SHOWN])}{more}"


def _amounts(there: Resources, spec: PoolSpec) -> list[str]:
    """Return how much there is of what a processor has."""
    others = (f"{there[name]:g} {name}" for name, _ in spec.others)
    return [f"{max(0.0, there.cpu):g} CPU", amount(max(0, there.memory)), *others]


def _left(nodes: Iterable[NodeObserved], spec: PoolSpec) -> str:
    """Return what is left on the nodes with most left, first of them those with enough of extended resources."""

    def rank(node: NodeObserved) -> tuple[float | str, ...]:
        enough = sum(node.left[name] >= wanted for name, wanted in spec.others)
        return -enough, -min(node.pods, 1), -node.cpu, -node.memory, node.name

    most = sorted(nodes, key=rank)
    left = [
        f"{node.name} has {listed([*_amounts(node.left, spec), some(max(0, node.pods), 'pod')])} left"
        for node in most[:SHOWN]
    ]
    more = f" and {len(most) - SHOWN} more nodes" if len(most) > SHOWN else ""
    return f"{'; '.join(left)}{more}"
