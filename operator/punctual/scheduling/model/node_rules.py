"""Rules about the nodes on which a job's pods may run: a pure function of the rules and what is known of a node.

Kubernetes' scheduler applies the same rules to each pod (node selector, required node affinity, taints, host ports), so
admission, plan and dispatch count only processors of nodes to which a job's rules have no objection. The edge of the
system reads the rules from the pod template and its volume claims.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from punctual.scheduling.model.wording import some

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
NAMED: Final = 3
"""Number of rules that a message names."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_LARGEST: Final = 2**63
_ALL_ADDRESSES: Final = ("", "0.0.0.0")  # noqa: S104  compared, not listened on


class Requirement(NamedTuple):
    """One requirement of a node selector term."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    field: bool = False
    """It is about the node's name (``matchFields``: metadata.name), not about a label."""

    def holds(self, node: "NodeFacts") -> bool:
        """Whether the node meets the requirement. A label that it does not have matches NotIn and DoesNotExist only."""
        value = node.name if self.field else node.labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        here, bounds = _integer(value), [_integer(bound) for bound in self.values]
        if here is None or len(bounds) != 1 or (bound := bounds[0]) is None:
            return False
        return here > bound if self.operator == "Gt" else here < bound


Term = tuple[Requirement, ...]
"""Requirements that must all hold. An empty term matches no node."""


class Rule(NamedTuple):
    """Alternative terms: a node must match one of them."""

    said: str
    """How a message names the rule: spec.template.spec.nodeSelector: example.com/disk=ssd"""
    terms: tuple[Term, ...]

    def holds(self, node: "NodeFacts") -> bool:
        """Whether the node matches one of the terms."""
        return any(term and all(requirement.holds(node) for requirement in term) for term in self.terms)


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """Return it as kubectl writes it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(NamedTuple):
    """A toleration of a pod. An empty key with Exists tolerates all taints, an empty effect those of every effect."""

    key: str
    operator: str
    value: str
    effect: str

    def covers(self, taint: Taint) -> bool:
        """Whether pods with it may run on a node with this taint."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value)


class HostPort(NamedTuple):
    """A port of a node that a pod takes."""

    protocol: str
    ip: str
    port: int

    def conflicts(self, other: "HostPort") -> bool:
        """Whether two pods with these ports cannot be on one node at a time."""
        if (self.protocol, self.port) != (other.protocol, other.port):
            return False
        return self.ip == other.ip or self.ip in _ALL_ADDRESSES or other.ip in _ALL_ADDRESSES


Ports = frozenset[HostPort]


def conflict(some_ports: Ports, others: Ports) -> bool:
    """Whether two pods with these ports cannot be on one node at a time."""
    return any(own.conflicts(other) for own in some_ports for other in others)


class NodeFacts(Protocol):
    """What rules read of a node."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Its taints that keep pods off, without the pool's own."""

    @property
    def ports(self) -> frozenset[HostPort]:
        """The host ports that other pods hold there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRules:
    """Rules of one job's pods. Hashable: jobs of one template have equal rules."""

    rules: tuple[Rule, ...] = ()
    """All of them must hold."""
    tolerations: tuple[Toleration, ...] = ()
    ports: frozenset[HostPort] = frozenset()
    """Host ports that each pod takes: a node has at most one of these pods at a time."""
    one_node: str = ""
    """Why all its pods must be on one node at a time, as a message names it ("claim data"); empty: they need not."""
    devices: tuple[tuple[str, int], ...] = ()
    """What each pod requests beside CPU and memory (`Resources.others`): a node must have it for each of its
    processors."""

    def objection(self, node: NodeFacts) -> str | None:
        """Return the first rule that keeps the pods off a node, as a message names it; None: they may run there."""
        for rule in self.rules:
            if not rule.holds(node):
                return rule.said
        for taint in node.taints:
            if not any(toleration.covers(taint) for toleration in self.tolerations):
                return f"taint {taint}"
        for port in sorted(self.ports):
            if any(port.conflicts(held) for held in node.ports):
                return f"host port {port.port}/{port.protocol}"
        return None


class Eligible(NamedTuple):
    """What planning needs to know of rules: the nodes on which pods may run, and what they may not do together."""

    nodes: frozenset[str]
    one_node: bool = False
    """All pods must be on one node at a time."""
    ports: frozenset[HostPort] = frozenset()
    """Host ports that each pod takes."""

    def conflicts(self, ports: Ports) -> bool:
        """Whether its pods cannot be on a node beside a pod with these ports."""
        return conflict(self.ports, ports)


ANY_NODE: Final = NodeRules()
"""The rules of a template that names no node: they object to tainted nodes only."""


class Exclusions(NamedTuple):
    """What rules say of a pool's nodes."""

    said: str
    """Which rules exclude how many nodes; empty: none excludes any."""
    fitting: int
    """Number of nodes that no rule excludes."""

    @classmethod
    def of(cls, rules: NodeRules, nodes: Collection[NodeFacts]) -> "Exclusions":
        """Count the nodes that each rule excludes, each node once."""
        found = Counter(no for node in nodes if (no := rules.objection(node)) is not None)
        said = [f"{rule} excludes {count}" for rule, count in found.most_common(NAMED)]
        if rest := found.total() - sum(count for _, count in found.most_common(NAMED)):
            said.append(f"other rules exclude {rest}")
        text = f"{', '.join(said)} of {some(len(nodes), 'node')}" if said else ""
        return cls(text, len(nodes) - found.total())

    @property
    def no_node(self) -> str:
        """Return the message for pods for which no processor is left."""
        text = f"no node of the pool may run its pods: {self.said}"
        if self.fitting:
            text += f", and {some(self.fitting, 'node')} that may run them can take none now: see status.nodes"
        return text


def _integer(text: str | None) -> int | None:
    """Return a number as Kubernetes reads it: decimal, 64 bits; None: it is none."""
    if text is None or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_LARGEST <= number < _LARGEST else None


@dataclass(frozen=True, slots=True)
class Fit:
    """Which nodes a job's pods may run on, and how many pods there may be at a time (None: any number)."""

    rules: NodeRules
    most: int | None = None
