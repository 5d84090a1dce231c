"""The writer's keys: what an operation is about.

The operations of one key are carried out in order. The resource of its key tells to which kind the outcome of an
operation goes.
"""

from typing import NamedTuple

from punctual.kube.api.resources import NODES, PODS, POOLS, Resource


class Key(NamedTuple):
    """What operations are about: an object with its status, its pods and its results."""

    resource: Resource
    name: str
    """The uid of an object, or what tells this key from others of the same resource."""

    def __str__(self) -> str:
        return f"{self.resource.plural}:{self.name}"


def finalizers_key(pool: str) -> Key:
    """Return the key of the finalizers of a pool (uid). They wait for no status."""
    return Key(POOLS, f"{pool}:finalizers")


def taints_key(node: str) -> Key:
    """Return the key of a node's taints."""
    return Key(NODES, node)


def placeholders_key(lane: int) -> Key:
    """Return the key of some of the placeholders: those on nodes that share the number."""
    return Key(PODS, f"placeholders:{lane}")
