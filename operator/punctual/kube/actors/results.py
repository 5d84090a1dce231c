"""Stores the results of ranges in ConfigMaps owned by the job: for the reduce pod, or without one to be read.

A range's result is the termination message of the accounted attempt. It has less than 4 kB, under the key
``<begin>-<end>``. A result that was cut, or is not UTF-8, is not accounted. To store a result again changes nothing.
The map from keys to ConfigMaps is kept in memory. A new leader reads it back before it stores anything, by name, so
that no right to list is needed.

An attempt may be stored and never accounted: the leader died in between together with the node, or it was replaced and
did not know it. Its units are then processed again in other ranges, and both results exist. The reduce pod must see
each unit once, so :meth:`Results.sources` selects consecutive ranges from the first unit to the last and names each of
them.

Without a reduce step the results are for people: :func:`readable` puts them into one ConfigMap named after the job.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from punctual.kube.api.resources import CONFIG_MAPS
from punctual.kube.cluster.pod_manifest import label, owner_reference
from punctual.kube.known.jobs import Owner
from punctual.kube.known.pod_names import results_name
from punctual.kube.writes.operations import AddToConfigMap, ApplyConfigMap, Operation, Outcome, Patch
from punctual.labels import JOB_LABEL, JOB_UID_LABEL
from punctual.scheduling.model.actions import StoreResult
from punctual.scheduling.model.ranges import Ranges, tiles
from punctual.scheduling.model.wording import some

RANGES: Final = 200
"""Maximum ranges in one ConfigMap."""
SIZE: Final = 900_000
"""Maximum bytes in one ConfigMap. The API server accepts 1 MiB."""


def config_map_name(uid: str, number: int) -> str:
    """Return the name of a job's ConfigMap.

    It contains the job's uid, so that a later job of the same name does not inherit it.
    """
    return f"punctual-{hashlib.sha256(uid.encode()).hexdigest()[:12]}-{number}"


def _size(key: str, text: str) -> int:
    return len(key) + len(text.encode())


def _parse(key: str) -> tuple[int, int] | None:
    begin, _, end = key.partition("-")
    return (int(begin), int(end)) if begin.isdecimal() and end.isdecimal() else None


def readable(owner: Owner, result: StoreResult) -> AddToConfigMap:
    """Return the write that keeps a result to be read. Keys have leading zeros: kubectl prints them in their order."""
    width = len(str(owner.units))
    name = results_name(owner.name)
    meta = {
        "name": name,
        "namespace": owner.namespace,
        "labels": {JOB_LABEL: label(owner.name)},
        "ownerReferences": [owner_reference(owner)],
    }
    path = CONFIG_MAPS.path(namespace=owner.namespace, name=name)
    return AddToConfigMap(path, meta, f"{result.begin:0{width}}-{result.end:0{width}}", result.message)


@dataclass(slots=True)
class Results:
    """The stored results of one job."""

    owner: Owner
    _maps: list[dict[str, int]] = field(default_factory=list)  # bytes by key
    _unmade: set[int] = field(default_factory=set)  # those of them that do not exist

    def load(self, maps: Iterable[Mapping[str, Any]]) -> None:
        """Load the contents of the job's existing ConfigMaps, in order."""
        self._maps = [{key: _size(key, text) for key, text in data.items()} for data in maps]

    def store(self, result: StoreResult) -> list[Operation]:
        """Return the writes that store a result."""
        key = f"{result.begin}-{result.end}"
        size = _size(key, result.message)
        number = next((n for n, keys in enumerate(self._maps) if key in keys), None)
        if number is None:
            last = self._maps[-1] if self._maps else None
            if last is None or len(last) >= RANGES or sum(last.values()) + size > SIZE:
                self._unmade.add(len(self._maps))
                self._maps.append({})
            number = len(self._maps) - 1
        self._maps[number][key] = size
        made: list[Operation] = [self._make(number)] if number in self._unmade else []
        self._unmade.discard(number)
        return [*made, self._patch(number, {key: result.message})]

    def lost(self, outcome: Outcome) -> str:
        """Record a failed write. Returns a message about the lost results, empty if it was reported before.

        The reduce then chooses from the results that exist. The next result creates the ConfigMap again.
        """
        operation = outcome.operation
        assert isinstance(operation, ApplyConfigMap | Patch)
        number = int(operation.path.rpartition("-")[2])
        keys = self._maps[number]
        put = operation.body["data"] if isinstance(operation, Patch) and isinstance(operation.body, dict) else {}
        make, gone = isinstance(operation, ApplyConfigMap), outcome.result == "gone"
        text = ""
        if number not in self._unmade:
            if gone and keys:
                text = f"the results of {some(len(keys), 'range')} are lost: {outcome.message}"
                keys.clear()
            elif make or put:
                text = f"a result was not stored: {outcome.message}"
        for key in put:
            keys.pop(key, None)
        if make or gone:
            self._unmade.add(number)
        return text

    def look(self) -> list[Operation]:
        """Return writes that change nothing. Each fails if its ConfigMap was deleted."""
        return [self._patch(number, {}) for number, keys in enumerate(self._maps) if keys]

    def missing(self, completed: Ranges) -> Ranges:
        """Return those of the units without a result."""
        return completed - Ranges.of(*(parsed for keys in self._maps for key in keys if (parsed := _parse(key))))

    def sources(self) -> list[dict[str, Any]]:
        """Return the sources of the reduce pod's volume: one file per range, each unit in exactly one file."""
        chosen = self._cover()
        sources = []
        for number, keys in enumerate(self._maps):
            if wanted := sorted(keys.keys() & chosen):
                items = [{"key": key, "path": key} for key in wanted]
                # optional: a missing result must not keep the pod from reporting the loss
                source = {"name": config_map_name(self.owner.uid, number), "items": items, "optional": True}
                sources.append({"configMap": source})
        return sources

    def _cover(self) -> set[str]:
        """Return the keys of ranges that cover all units without overlap.

        If no choice does, return all ranges (a recovered remainder may have none).
        """
        keys = sorted((key for keys in self._maps for key in keys), reverse=True)
        by_range = {parsed: key for key in keys if (parsed := _parse(key))}
        chosen = tiles(by_range, self.owner.units)
        return set(keys) if chosen is None else {by_range[one] for one in chosen}

    def _make(self, number: int) -> ApplyConfigMap:
        name = config_map_name(self.owner.uid, number)
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": self.owner.namespace,
                "labels": {JOB_UID_LABEL: self.owner.uid},
                "ownerReferences": [owner_reference(self.owner)],
            },
        }
        return ApplyConfigMap(CONFIG_MAPS.path(namespace=self.owner.namespace, name=name), body)

    def _patch(self, number: int, data: dict[str, str]) -> Patch:
        name = config_map_name(self.owner.uid, number)
        # a merge patch adds a key and keeps the others, which an apply would have to repeat
        path = CONFIG_MAPS.path(namespace=self.owner.namespace, name=name)
        return Patch(path, {"data": data}, refusable=True)
