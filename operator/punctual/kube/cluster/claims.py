"""Which nodes PersistentVolumeClaims allow: by their volumes' node affinity, their storage classes and access modes.

A claim that is bound allows the nodes that its volume's affinity names. One that waits for its first pod
(WaitForFirstConsumer) allows what its storage class's topologies name, and binds where that pod runs. A claim that only
one node may mount (ReadWriteOnce) confines all pods that use it to one node at a time; with ReadWriteOncePod there is
only one pod. Source: the VolumeBinding and VolumeRestrictions plugins of kube-scheduler.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from punctual.kube.cluster.pod_needs import PodNeeds, say_terms, term_of
from punctual.scheduling.model.node_rules import Fit, Requirement, Rule, Term

ONE_POD: Final = "ReadWriteOncePod"
_SHARED: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})
"""Access modes with which several nodes may mount a claim."""
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"

Json = Mapping[str, Any]


class VolumeClaim(NamedTuple):
    """What is kept of a PersistentVolumeClaim."""

    namespace: str
    name: str
    volume: str
    """Name of the volume that it is bound to; empty: not bound."""
    storage_class: str | None
    """None: the default class."""
    modes: frozenset[str]


class Volume(NamedTuple):
    """What is kept of a PersistentVolume: the nodes that can reach it. No terms: all."""

    name: str
    terms: tuple[Term, ...]


class StorageClass(NamedTuple):
    """What is kept of a StorageClass."""

    name: str
    waits: bool
    """Its claims wait for their first pod."""
    topologies: tuple[Term, ...]
    default: bool


def project_claim(body: Json) -> VolumeClaim:
    """Return what is kept of a claim's body."""
    meta, spec = body["metadata"], body.get("spec") or {}
    modes = frozenset(spec.get("accessModes") or ())
    return VolumeClaim(
        meta["namespace"], meta["name"], spec.get("volumeName") or "", spec.get("storageClassName"), modes
    )


def project_volume(body: Json) -> Volume:
    """Return what is kept of a volume's body."""
    required = ((body.get("spec") or {}).get("nodeAffinity") or {}).get("required") or {}
    return Volume(body["metadata"]["name"], tuple(term_of(t) for t in required.get("nodeSelectorTerms") or ()))


def project_class(body: Json) -> StorageClass:
    """Return what is kept of a storage class's body."""
    meta = body["metadata"]
    topologies = tuple(
        tuple(Requirement(e["key"], "In", tuple(e["values"])) for e in term.get("matchLabelExpressions") or ())
        for term in body.get("allowedTopologies") or ()
    )
    default = (meta.get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
    return StorageClass(meta["name"], body.get("volumeBindingMode") == "WaitForFirstConsumer", topologies, default)


class Claims:
    """All claims, volumes and storage classes of the cluster. ``changed(namespace, name)`` hears of changed claims."""

    def __init__(self, changed: Callable[[str, str], None] = lambda _namespace, _name: None) -> None:
        self._changed = changed
        self._claims: dict[tuple[str, str], VolumeClaim] = {}
        self._volumes: dict[str, Volume] = {}
        self._classes: dict[str, StorageClass] = {}

    def observe_claim(self, claim: VolumeClaim, *, gone: bool) -> None:
        """Record the present state of a claim."""
        key = claim.namespace, claim.name
        if gone:
            self._claims.pop(key, None)
        else:
            self._claims[key] = claim
        self._changed(*key)

    def observe_volume(self, volume: Volume, *, gone: bool) -> None:
        """Record the present state of a volume."""
        if gone:
            self._volumes.pop(volume.name, None)
        else:
            self._volumes[volume.name] = volume
        self._tell(claim for claim in self._claims.values() if claim.volume == volume.name)

    def observe_class(self, storage: StorageClass, *, gone: bool) -> None:
        """Record the present state of a storage class."""
        if gone:
            self._classes.pop(storage.name, None)
        else:
            self._classes[storage.name] = storage
        self._tell(claim for claim in self._claims.values() if not claim.volume)

    def fit(self, namespace: str, needs: PodNeeds) -> Fit:
        """Return which nodes pods with these needs may run on. A claim that does not exist says nothing yet."""
        rules, one_node, most = list(needs.rules.rules), needs.rules.one_node, None
        for name in needs.claims:
            claim = self._claims.get((namespace, name))
            if claim is None:
                continue
            if terms := self._terms(claim):
                rules.append(Rule(f"claim {name}: {say_terms(terms)}", terms))
            if ONE_POD in claim.modes:
                most = 1
            elif not claim.modes & _SHARED:
                one_node = one_node or f"claim {name}"
        return Fit(replace(needs.rules, rules=tuple(rules), one_node=one_node), most)

    def _terms(self, claim: VolumeClaim) -> tuple[Term, ...]:
        if claim.volume:
            volume = self._volumes.get(claim.volume)
            return volume.terms if volume else ()
        storage = self._class_of(claim)
        return storage.topologies if storage and storage.waits else ()

    def _class_of(self, claim: VolumeClaim) -> StorageClass | None:
        if claim.storage_class is None:
            return next((found for found in self._classes.values() if found.default), None)
        return self._classes.get(claim.storage_class)

    def _tell(self, claims: Iterable[VolumeClaim]) -> None:
        for claim in list(claims):
            self._changed(claim.namespace, claim.name)
