"""The objects that ``punctual plan``, ``why`` and ``pools`` read off the cluster.

kubectl starts here at once, before the models and the scheduler are imported: both take their time, so they run side by
side. This module imports neither.
"""

import json
import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Self

from punctual.cli.kubectl import Call, Kubectl
from punctual.errors import ClusterError, PunctualError
from punctual.view.changes import Json

POOLS = "pools.punctual.dev"
NAMESPACED = "divisiblejobs.punctual.dev,profiles.punctual.dev,reservations.punctual.dev"
SENT = ("name", "generateName", "namespace", "labels", "annotations")
"""Metadata of a dry run. The API server refuses the rest in a create."""
_UNDECIDED = re.compile(r"does not support dry run|cannot create resource|may not create ")
"""What is said where the user or a webhook lets the API server try no object."""
_JUDGED = re.compile(r"is invalid: |\((BadRequest|Forbidden|Invalid)\)|denied the request|unable to decode")
"""What is said of an object that the API server refuses, or kubectl."""
_PLACE = re.compile(r'^(kubectl [^:]*: )?(error: |Error from server( \(\w+\))?: )?(error when creating "STDIN": )?')

AT_ONCE = 8
"""Dry runs at once."""


class Objects(NamedTuple):
    """What was read."""

    bodies: list[Json]
    whole: bool
    """False: the user may not read all namespaces, so only some were read."""


class ClusterState:
    """Pools, jobs, profiles and reservations; use it as ``with ClusterState(kubectl, namespace) as state``.

    ``namespace``: None takes that of kubectl's context. A user needs the right to list the objects of all namespaces,
    or the rights to get the pools and to list the other objects of the jobs' own namespaces.
    """

    def __init__(self, kubectl: Kubectl, namespace: str | None) -> None:
        self._kubectl, self._namespace = kubectl, namespace
        self._context: Call | None = None
        self._all: Call | None = None

    def __enter__(self) -> Self:
        """Start kubectl."""
        self._all = self._kubectl.begin("get", "-o", "json", f"{POOLS},{NAMESPACED}", "--all-namespaces")
        if self._namespace is None:
            self._context = self._kubectl.begin_namespace()
        return self

    def __exit__(self, *_: object) -> None:
        """End what still runs."""
        for call in (self._all, self._context):
            if call is not None:
                call.drop()

    def namespace(self) -> str:
        """Return the namespace of manifests that name none."""
        if self._namespace is None and self._context is not None:
            self._namespace = self._context.answer().strip() or "default"
        return self._namespace or "default"

    def objects(self, pools: Collection[str] | None, namespaces: Collection[str]) -> Objects:
        """Return all objects, or those of these pools and namespaces if the user may not read more.

        ``pools`` None: the pools that the jobs of these namespaces name.

        Raises ClusterError if the cluster does not answer or does not know the kinds, or the user may not read these.
        """
        assert self._all is not None
        try:
            return Objects([json.loads(self._all.answer())], whole=True)
        except ClusterError as error:
            if "doesn't have a resource type" in str(error):
                text = "the cluster does not know pools: install the chart first (charts/punctual)"
                raise ClusterError(text) from error
            if "(Forbidden)" not in str(error):
                raise
        some = [[NAMESPACED, "-n", name] for name in sorted(namespaces)]
        if pools is not None:
            return Objects(self._read(self._get(pools), *some), whole=False)
        bodies = self._read(*some)
        jobs = (one for body in bodies for one in body.get("items") or () if one.get("kind") == "DivisibleJob")
        named = {str((job.get("spec") or {}).get("pool") or "") for job in jobs} - {""}
        return Objects([*bodies, *(self._read(self._get(named)) if named else ())], whole=False)

    @staticmethod
    def _get(pools: Collection[str]) -> list[str]:
        return [POOLS, *sorted(pools), "--ignore-not-found"]

    def _read(self, *wanted: list[str]) -> list[Json]:
        calls = [self._kubectl.begin("get", "-o", "json", *words) for words in wanted]
        return [json.loads(text) for call in calls if (text := call.answer().strip())]

    def tried(self, bodies: Sequence[Json]) -> list[Json]:
        """Return objects with the specs that the API server would store, by a dry run of their creation.

        An object that it does not try, because the user may not create it or a webhook supports no dry run, stays as
        it is. Raises PunctualError with kubectl's words if it refuses one.
        """
        self.namespace()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return list(threads.map(self._tried, bodies))

    def _tried(self, body: Json) -> Json:
        try:
            return {**body, "spec": self._create(body, SENT)}
        except ClusterError as error:
            said = str(error)
        if "(AlreadyExists)" in said:  # it is valid: the defaults are those of any other name
            return {**body, "spec": self._create(body, SENT[2:], generateName="plan-")}
        if _JUDGED.search(said) and not _UNDECIDED.search(said):
            raise PunctualError(_PLACE.sub("", said))
        return body

    def _create(self, body: Json, fields: Sequence[str], **more: str) -> Json:
        given = body.get("metadata") or {}
        meta = {field: given[field] for field in fields if field in given} | more
        sent = {"apiVersion": body.get("apiVersion"), "kind": body["kind"], "metadata": meta, "spec": body.get("spec")}
        where = "-n", str(given.get("namespace") or self.namespace())
        words = "create", "--dry-run=server", "-o", "json", "-f", "-", *where
        spec: Json = json.loads(self._kubectl.run(*words, stdin=json.dumps(sent)))["spec"]
        return spec

    def labelled(self, namespace: str) -> Json:
        """Return a Namespace, with its labels."""
        return self._kubectl.get("namespace", namespace)
