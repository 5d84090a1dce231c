"""The writes of a leader, as values, and their execution.

Each operation is harmless when repeated. `perform` returns its result: the wanted state holds (``done``), the object
does not exist (``gone``), or it can never succeed (``refused``, ``conflict``). A ClusterError means that another try
may help. This module stores nothing and repeats nothing; `writer` controls order, rate and repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from punctual import errors
from punctual.kube.api.resources import PODS, Resource
from punctual.kube.known.oversize import PATIENCE
from punctual.kube.known.revision import check
from punctual.kube.writes.keys import Key
from punctual.scheduling.model.job import Chunk

if TYPE_CHECKING:  # these values are also made where no client is installed
    from punctual.kube.cluster.client import ApiClient

Json = dict[str, Any]

FIELD_MANAGER = "punctual-operator"


@dataclass(frozen=True, slots=True)
class PutStatus:
    """Write an object's whole status. ``body`` has apiVersion, kind, metadata (name, uid) and status.

    ``metadata.uid`` is required: an object that was deleted and created again under the same name is another one, and
    an old promise must not be written to it. It is a PUT, because nothing else writes statuses, and a server-side apply
    costs the API server a fifth more.
    """

    path: str
    body: Json
    urgent: bool = True
    version: str = ""
    """Resource version at which the object was seen. It saves a read before the first write."""
    slow: bool = False
    """Its object is oversized: the API server needs seconds for each write of it."""

    @classmethod
    def of(
        cls,
        resource: Resource,
        kind: str,
        meta: Json,
        status: Json,
        *,
        urgent: bool = True,
        version: str = "",
        slow: bool = False,
    ) -> PutStatus:
        """Return the write of a whole status. ``meta`` has name, uid and, if there is one, namespace."""
        body = {"apiVersion": resource.version, "kind": kind, "metadata": meta, "status": status}
        path = resource.path(namespace=meta.get("namespace", ""), name=meta["name"])
        return cls(path, body, urgent, version, slow)


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a pod. If one of its name exists, ``verify(pod)`` returns whether it is the same (`same`)."""

    namespace: str
    body: Json
    verify: Callable[[Json], bool]

    @property
    def pod(self) -> str:
        """Its namespace and name."""
        return f"{self.namespace}/{self.body['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class StartPod:
    """Let a pod that waits at the gate start as a chunk: a merge patch of this pod (``metadata.uid``) and no other."""

    path: str
    body: Json
    chunk: Chunk

    @property
    def pod(self) -> str:
        """Its uid."""
        uid: str = self.body["metadata"]["uid"]
        return uid


@dataclass(frozen=True, slots=True)
class CreateObject:
    """Create an object of the body's name. Another owner's of this name is left alone (``conflict``)."""

    path: str
    """Of the collection."""
    body: Json


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete this pod (and no other of its name), with a grace period of ``grace`` seconds."""

    namespace: str
    name: str
    uid: str
    grace: float = 5.0


@dataclass(frozen=True, slots=True)
class LimitPod:
    """Give this pod a time limit that is over: its kubelet ends its containers, and the pod and its logs stay."""

    path: str
    uid: str


@dataclass(frozen=True, slots=True)
class Annotate:
    """Set annotations of an object (None removes one). With ``uid``, of this object only."""

    path: str
    annotations: dict[str, str | None]
    uid: str = ""
    urgent: bool = True
    """False: it waits until no urgent operation waits."""


@dataclass(frozen=True, slots=True)
class ApplyConfigMap:
    """Server-side apply of a ConfigMap (or of any whole object) with the content ``body``."""

    path: str
    body: Json


@dataclass(frozen=True, slots=True)
class AddToConfigMap:
    """Put one key into the owner's ConfigMap, which is created if there is none. Other keys stay.

    A ConfigMap that an earlier job of the same name has left is taken over, empty; the garbage collector may need a
    while to delete it. Any other one of this name is left alone (``conflict``).
    """

    path: str
    meta: Json
    """``metadata`` of a new ConfigMap: name, namespace, labels, and the one owner reference."""
    key: str
    """Of digits and hyphens only."""
    value: str


@dataclass(frozen=True, slots=True)
class Patch:
    """JSON merge patch (a dict) or JSON patch (a list) of an object. It must be harmless when repeated."""

    path: str
    body: Json | list[Json]
    subresource: str = ""
    refusable: bool = False
    """A refusal by an admission plugin, which may last for ever, counts as the result: other operations wait behind it.
    """


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete an object of any kind. With ``uid``, this one only."""

    path: str
    uid: str = ""
    propagation: Literal["", "Background", "Foreground", "Orphan"] = "Background"


Operation = (
    PutStatus
    | CreatePod
    | StartPod
    | CreateObject
    | DeletePod
    | LimitPod
    | Annotate
    | ApplyConfigMap
    | AddToConfigMap
    | Patch
    | DeleteObject
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an operation.

    ``done``: the wanted state holds. ``gone``: the object does not exist, which for a delete is ``done``. ``refused``:
    final, by quota, admission, RBAC or schema; ``message`` is the API server's. ``conflict``: another object has the
    name of this pod or ConfigMap, or the same pod is being deleted.
    """

    key: Key
    operation: Operation
    result: Literal["done", "gone", "refused", "conflict"]
    message: str = ""
    body: Json = field(default_factory=dict)
    """The object in the API server's answer, if there was one."""
    existed: bool = False
    """A pod of this name was there already. Its events may have come before anything waited for them."""


def same(body: Json, *, labels: tuple[str, ...]) -> Callable[[Json], bool]:
    """Return a ``verify`` for `CreatePod`: the existing pod has the same values of these labels."""
    wanted = {name: body["metadata"]["labels"].get(name) for name in labels}

    def verify(pod: Json) -> bool:
        there = pod["metadata"].get("labels", {})
        return all(there.get(name) == value for name, value in wanted.items())

    return verify


def replace_list(path: str, there: Sequence[Any], wanted: Sequence[Any]) -> list[Json]:
    """Return the JSON patch that puts a list in place of another one. It fails if the list has changed since."""
    # null: there is none
    test: Json = {"op": "test", "path": path, "value": list(there) or None}
    return [test, {"op": "add", "path": path, "value": list(wanted)}]


async def perform(  # noqa: PLR0911  one for each result
    client: ApiClient, key: Key, operation: Operation, *, version: str = "", before: str = ""
) -> Outcome:
    """Try once. Raises Fenced if a newer leader wrote the object, another ClusterError if a later try may help.

    ``version`` is the resource version at which the object of a PutStatus was last seen, if known. ``before`` is one
    that it had, perhaps long ago: raises StoreFellBack if the API server has an older one.
    """
    try:
        match operation:
            case CreatePod():
                return await _create_pod(client, key, operation)
            case AddToConfigMap():
                return await _add(client, key, operation)
            case CreateObject():
                return await _create(client, key, operation)
            case PutStatus():
                body = await _put_status(client, operation, version, before=before)
            case _:
                body = await _write(client, operation)
    except (errors.NotFound, errors.Replaced) as error:
        return Outcome(key, operation, "gone", str(error))
    except errors.Invalid as error:
        return Outcome(key, operation, "refused", str(error))
    except errors.NoRight:
        raise
    except errors.Forbidden as error:
        # a quota or a policy may last for ever, and the job's statuses wait behind it
        if isinstance(operation, ApplyConfigMap | AddToConfigMap | StartPod | CreateObject) or (
            isinstance(operation, Patch) and operation.refusable
        ):
            return Outcome(key, operation, "refused", str(error))
        raise
    return Outcome(key, operation, "done", body=body)


async def _put_status(
    client: ApiClient, operation: PutStatus, version: str, *, again: bool = True, before: str = ""
) -> Json:
    """Write the status of this object over the version that was seen. A PUT of another one fails.

    ``again``: another write may have come between a read and the PUT, as the leader's own of a finalizer does.
    ``before``: a version that the object had. Raises StoreFellBack if the API server has an older one.

    A field that the schema does not know is an error: otherwise a promise would be written in part.
    """
    meta = operation.body["metadata"]
    uid = meta.get("uid")
    version = version or operation.version
    known = bool(version)
    if uid and not known:
        there = await client.metadata(operation.path)
        if there["uid"] != uid:
            raise errors.Replaced(f"the uid is {there['uid']}, not {uid}")
        check(operation.path, before, there["resourceVersion"])
        version = there["resourceVersion"]
    body = operation.body | {"metadata": meta | {"resourceVersion": version}} if uid else operation.body
    try:
        deadline = PATIENCE if operation.slow else None
        return await client.put_status(operation.path, body, field_manager=FIELD_MANAGER, deadline=deadline)
    except errors.Conflict:
        if not known and not (uid and again):
            raise
    # the object was edited since: read it again at once
    return await _put_status(client, replace(operation, version=""), "", again=known, before=version)


async def _write(  # noqa: PLR0911  one arm for each kind
    client: ApiClient, operation: ApplyConfigMap | StartPod | DeletePod | LimitPod | DeleteObject | Annotate | Patch
) -> Json:
    match operation:
        case ApplyConfigMap(path, body):
            return await client.apply(path, body, field_manager=FIELD_MANAGER)
        case StartPod(path, body):
            return await client.patch_merge(path, body, field_manager=FIELD_MANAGER)
        case DeletePod(namespace, name, uid, grace):
            return await client.delete(PODS.path(namespace=namespace, name=name), uid=uid, grace=grace)
        case LimitPod(path, uid):
            limit: Json = {"metadata": {"uid": uid}, "spec": {"activeDeadlineSeconds": 1}}
            return await client.patch_merge(path, limit, field_manager=FIELD_MANAGER)
        case DeleteObject(path, uid, propagation):
            return await client.delete(path, uid=uid, propagation=propagation)
        case Annotate(path, annotations, uid):
            meta: Json = {"annotations": annotations} | ({"uid": uid} if uid else {})
            return await client.patch_merge(path, {"metadata": meta}, field_manager=FIELD_MANAGER)
        case Patch(path, patch, subresource) if isinstance(patch, list):
            return await client.patch_json(path, patch, subresource=subresource, field_manager=FIELD_MANAGER)
        case Patch(path, patch, subresource):
            assert isinstance(patch, dict)
            return await client.patch_merge(path, patch, subresource=subresource, field_manager=FIELD_MANAGER)


async def _add(client: ApiClient, key: Key, operation: AddToConfigMap) -> Outcome:
    owner, data = operation.meta["ownerReferences"][0], {operation.key: operation.value}
    owned = {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": owner["uid"]}
    add = [owned, {"op": "add", "path": f"/data/{operation.key}", "value": operation.value}]
    try:
        return Outcome(key, operation, "done", body=await _patch(client, operation.path, add))
    except errors.NotFound:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": operation.meta, "data": data}
        collection = operation.path.rpartition("/")[0]
        return Outcome(key, operation, "done", body=await client.create(collection, body, field_manager=FIELD_MANAGER))
    except errors.Invalid:
        there = await client.metadata(operation.path)
        owners = there.get("ownerReferences") or [{}]
        if owners[0].get("uid") == owner["uid"]:
            raise
        if owners[0].get("kind") != owner["kind"]:
            return Outcome(key, operation, "conflict", f"ConfigMap {there['name']} exists and is not the job's")
    taken = {"labels": operation.meta["labels"], "ownerReferences": operation.meta["ownerReferences"]}
    take = [
        {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": owners[0]["uid"]},
        *({"op": "add", "path": f"/metadata/{name}", "value": value} for name, value in taken.items()),
        {"op": "add", "path": "/data", "value": data},
    ]
    try:
        return Outcome(key, operation, "done", body=await _patch(client, operation.path, take))
    except (errors.NotFound, errors.Invalid) as error:  # the garbage collector was first
        raise errors.Conflict(str(error)) from None


async def _patch(client: ApiClient, path: str, patch: list[Json]) -> Json:
    return await client.patch_json(path, patch, field_manager=FIELD_MANAGER)


async def _create(client: ApiClient, key: Key, operation: CreateObject) -> Outcome:
    try:
        body = await client.create(operation.path, operation.body, field_manager=FIELD_MANAGER)
    except errors.AlreadyExists as error:
        try:
            there = await client.metadata(f"{operation.path}/{operation.body['metadata']['name']}")
        except errors.NotFound:
            raise error from None  # deleted in between: create it again
        wanted, owners = operation.body["metadata"].get("ownerReferences"), there.get("ownerReferences") or ()
        if wanted and wanted[0]["uid"] in {owner["uid"] for owner in owners}:
            return Outcome(key, operation, "done")  # the answer of an earlier try was lost
        return Outcome(key, operation, "conflict", str(error))
    return Outcome(key, operation, "done", body=body)


async def _create_pod(client: ApiClient, key: Key, operation: CreatePod) -> Outcome:
    collection = PODS.path(namespace=operation.namespace)
    existed = False
    try:
        pod = await client.create(collection, operation.body, field_manager=FIELD_MANAGER)
    except errors.AlreadyExists as error:
        try:
            pod = await client.get(f"{collection}/{operation.body['metadata']['name']}")
        except errors.NotFound:
            raise error from None  # deleted in between: create it again
        existed = True
        if not operation.verify(pod):
            return Outcome(key, operation, "conflict", "another pod has this name", pod, existed=True)
        if pod["metadata"].get("deletionTimestamp"):
            return Outcome(key, operation, "conflict", "the pod exists, but is being deleted", pod, existed=True)
    except errors.NoRight:
        raise
    except (errors.Forbidden, errors.Invalid, errors.NotFound) as error:
        return Outcome(key, operation, "refused", str(error))
    return Outcome(key, operation, "done", body=pod, existed=existed)
