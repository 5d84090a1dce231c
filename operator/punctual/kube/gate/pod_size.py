"""Whether a job's pods fit a processor of their pool, by what the API server makes of them.

A plan counts one processor per pod. What a template, a LimitRange's defaults, an injected container or the overhead of
a RuntimeClass add to a pod must therefore fit into it beside the work; the work's own request gives way. Resources that
a processor does not name (ephemeral-storage, nvidia.com/gpu, …) are measured by what a node has for each of its
processors.
"""

from collections.abc import Iterable
from typing import Any, Final

from punctual import reasons
from punctual.kube.cluster.requests import beside, is_device, parts, requested
from punctual.labels import KIND_LABEL
from punctual.notation.quantity import format_bytes, format_cores
from punctual.scheduling.model.events import NodeObserved
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.processors import places_of
from punctual.scheduling.model.resources import Excess, Resources

Json = dict[str, Any]
Refusal = tuple[str, str]

_ADVICE: Final = {
    "cpu": "raise the pool's processor.cpu, or lower what is requested beside the work: defaults of a LimitRange, "
    "injected containers and the overhead of a RuntimeClass count",
    "memory": "raise the pool's processor.memory, or lower the memory of the template; defaults of a LimitRange, "
    "injected containers and the overhead of a RuntimeClass count",
}
_OF_EXTENDED: Final = (
    "leave it out of the template, and the work gets what the other containers leave of a processor, or name the same "
    "amount as the pool's processor.resources; defaults of a LimitRange and injected containers count"
)


def others_of(sent: Json, answer: Json, processor: PoolSpec) -> Resources | None:
    """Return what a pod that is too large requests beside the work; None: the work cannot give way to it.

    ``sent``: the pod as it was sent; ``answer``: as the API server would store it.
    """
    found = beside(answer["spec"], work_of(sent))
    needed = Resources(processor.share.cpu, processor.share.memory).names()  # by the work, too
    return found if not any(found[name] >= processor.share[name] for name in needed) else None


def wrong_size(answer: Json, processor: PoolSpec) -> Refusal | None:
    """Return the refusal of a pod that requests more than its share of a processor, or less of an extended resource.

    Less memory is left unused. A device that a template leaves unused is more likely a mistake.
    """
    asked, share = requested(answer["spec"]), processor.share
    wrong = [one for one in asked.larger(share) if one.name in share.names()]
    wrong += [Excess(name, asked[name], share[name]) for name, amount in share.others if asked[name] < amount]
    return (reasons.POD_TOO_LARGE, _says(answer, wrong[0], processor)) if wrong else None


def takes_devices(answer: Json, processor: PoolSpec) -> Refusal | None:
    """Return the refusal of a guest's pod with an extended resource of the processors: a promise may count on it."""
    asked = requested(answer["spec"])
    named = [name for name, _ in processor.others if asked[name]]
    if not named:
        return None
    text = (
        f"its pods request {_amount(named[0], asked[named[0]])} {named[0]}, which is a part of the processors of pool "
        f"{processor.name}; guests get none of those: leave it out of the template, or choose another pool"
    )
    return reasons.POD_TOO_LARGE, text


def ignored(sent: Json, answer: Json) -> Refusal | None:
    """Return the refusal of a pod with resources of the pod as a whole, which this cluster does not know yet."""
    if not sent["spec"].get("resources") or answer["spec"].get("resources"):
        return None
    text = "this cluster ignores spec.template.spec.resources (Kubernetes 1.34 and later): name them in the containers"
    return reasons.POD_REFUSED, f"its pods would run without a limit: {text}"


def not_offered(requests: Resources, processor: PoolSpec, nodes: Iterable[NodeObserved]) -> Refusal | None:
    """Return the refusal of pods that request resources which no node has for each of its processors.

    Resources that a processor names are compared with it elsewhere. ``nodes``: those of the pool.
    """
    wanted = Resources(others=requests.others)
    counts = [(node, count) for node in nodes if (count := places_of(node, processor))]
    if not wanted or not counts:  # without processors, the Pool itself refuses the job
        return None
    shares = [(node, count, Resources(others=node.others) // count) for node, count in counts]
    if any(wanted.fits(share) for _, _, share in shares):
        return None
    # the resource that is scarcest on the best node
    node, count, share = max(shares, key=lambda one: sum(one[2][name] >= wanted[name] for name in wanted.names()))
    lacking = wanted.larger(share)[0]
    there = _amount(lacking.name, Resources(others=node.others)[lacking.name])
    text = (
        f"its pods request {lacking.name} {_amount(lacking.name, lacking.needed)}; no node of pool {processor.name} "
        f"has that for each of its processors: {node.name} has {there} for {count}. Choose a pool with such nodes, or "
        "larger processors, so that fewer share a node"
    )
    return reasons.POD_TOO_LARGE, text


def wrong_job_size(asked: Resources, share: Resources) -> Refusal | None:
    """Return the refusal of an ordinary Job's pods, which request ``asked``, with both numbers.

    What they request less than a processor is held for them. Without any CPU, a pod would get next to none beside
    others. Other resources that a processor does not name (ephemeral-storage, …) are left to `not_offered`.
    """
    if not asked.cpu:
        return reasons.INVALID_SPEC, f"{_both_amounts(Excess('cpu', 0.0, share.cpu))}: request some of it"
    for one in asked.larger(share):
        if one.name in share.names() or is_device(one.name):
            return reasons.POD_TOO_LARGE, f"{_both_amounts(one)}: request no more"
    return None


def _both_amounts(one: Excess) -> str:
    needed, there = _amount(one.name, one.needed), _amount(one.name, one.there)
    field = f"spec.template.spec.containers[].resources.requests.{one.name}"
    return f"{field}: a pod requests {needed} in all, and a processor of the pool has {there}"


def work_of(pod: Json) -> str:
    """Return the name of the container that does the work, of a pod as it is sent: the first."""
    return str(pod["spec"]["containers"][0]["name"])


def _says(answer: Json, excess: Excess, processor: PoolSpec) -> str:
    name = excess.name
    named = [(part.name, part.requests[name]) for part in parts(answer["spec"]) if part.requests[name]]
    of_what = "a pod's share of a processor" if processor.fluid else "a processor"
    reduce = answer["metadata"]["labels"][KIND_LABEL] == "Reduce"
    listed = ", ".join(f"{part} {_amount(name, amount)}" for part, amount in named) or "no container names it"
    return (
        f"its {'reduce pod requests' if reduce else 'pods request'} {_amount(name, excess.needed)} "
        f"{'CPU' if name == 'cpu' else name} ({listed}); {of_what} of pool {processor.name} has "
        f"{_amount(name, excess.there)}: {_ADVICE.get(name, _OF_EXTENDED)}"
    )


def _amount(name: str, amount: float) -> str:
    return format_cores(amount) if name == "cpu" else format_bytes(int(amount))
