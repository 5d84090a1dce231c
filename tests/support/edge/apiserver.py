"""The API server's answers to requests, as bytes: what the product looks at, and what its tests ask for.

Written from Kubernetes' documentation and compared with a real one (`compare`). Objects lie in a
`Store`; ``admit`` are functions that change a body before it is stored, or refuse it.
"""

import base64
import email.utils
import functools
import itertools
import re
from dataclasses import dataclass
from urllib.parse import unquote

import jsonpatch
import jsonpointer
import orjson
from cluster_model.clock import written

from edge.kinds import BY_RESOURCE, Invalid, shaped, validate
from edge.store import Store

PATH = re.compile(
    r"/(?:api|apis)/(?P<version>v1|[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?"
)
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
ENDED = {"Succeeded", "Failed"}
GRACE = 30


class Refused(Exception):  # noqa: N818  an answer, not an error of the program
    """An answer that is no success."""

    def __init__(self, code, reason, message, **details):
        super().__init__(message)
        self.code, self.reason, self.details = code, reason, details

    def status(self):
        """Return the Status object."""
        causes = self.details.pop("causes", None)
        details = {**self.details, **({"causes": causes} if causes else {})}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": resume} if (resume := details.pop("resume", "")) else {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "details": details,
            "code": self.code,
        }


def not_found(kind, name):
    return Refused(404, "NotFound", f'{kind.plural} "{name}" not found', name=name, kind=kind.plural)


def conflict(kind, name):
    said = "the object has been modified; please apply your changes to the latest version and try again"
    return Refused(409, "Conflict", f'Operation cannot be fulfilled on {kind.plural} "{name}": {said}', name=name)


def other_uid(wanted, there):
    said = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {there}"
    return Refused(409, "Conflict", said)


def invalid(kind, name, causes):
    text = ", ".join(f"{field}: Invalid value: {message}" for field, message in causes)
    listed = [{"reason": "FieldValueInvalid", "message": message, "field": field} for field, message in causes]
    return Refused(422, "Invalid", f'{kind.kind} "{name}" is invalid: {text}', name=name, causes=listed)


class Answer:
    """A complete answer."""

    def __init__(self, code, body, headers=None):
        self.code = code
        self.body = body if isinstance(body, bytes) else orjson.dumps(body)
        self.headers = headers or {}


class Watching:
    """A watch that was accepted: where it begins, and what it wants."""

    def __init__(self, kind, selects, version, seconds, *, initial, bookmarks, light):
        self.kind, self.selects, self.version, self.seconds = kind, selects, version, seconds
        self.initial, self.bookmarks, self.light = initial, bookmarks, light


@dataclass(frozen=True, slots=True)
class Request:
    """A request for one object."""

    method: str
    params: dict
    content_type: str | None
    body: object
    sub: str | None


NOT_ALLOWED = Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


class ApiServer:
    """``answer(method, path, params, headers, data)`` returns an Answer or a Watching. ``now()``: its wall clock."""

    def __init__(self, now, *, store=None):
        self.now = now
        self.store = store or Store()
        self.admit = []
        """Functions (kind, body, before, dry) that return the body to store, or raise Refused."""
        self.reviews = {}
        """What a TokenReview says, by token."""
        self._uids = itertools.count(1)

    def answer(self, method, path, params, headers, data):
        """Answer one request. Refusals are answers, too."""
        try:
            return self._answer(method, unquote(path), params, headers, data)
        except Refused as refused:
            return Answer(refused.code, refused.status())

    def _answer(self, method, path, params, headers, data):
        if path == "/version":
            return Answer(200, {"major": "1", "minor": "33"})
        found = PATH.fullmatch(path)
        if found is None:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        version, namespace, plural, name, sub = found.group("version", "namespace", "plural", "name", "sub")
        if plural == "tokenreviews":
            return Answer(201, self._review(orjson.loads(data)))
        kind = BY_RESOURCE.get((version, plural))
        if kind is None:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        light = "PartialObjectMetadata" in headers.get("Accept", "")
        if not name:
            return self._collection(kind, namespace, method, params, data, light=light)
        at = path.removesuffix(f"/{sub}") if sub else path
        request = Request(method, params, headers.get("Content-Type"), orjson.loads(data) if data else {}, sub)
        return self._object(kind, at, namespace, request, light=light)

    def _collection(self, kind, namespace, method, params, data, *, light):
        if method == "POST":
            return self._shown(201, self._create(kind, namespace, orjson.loads(data), params), light)
        if method != "GET":
            raise NOT_ALLOWED
        return (self._watch if "watch" in params else self._list)(kind, namespace, params, light)

    def _object(self, kind, at, namespace, request, *, light):
        there = self.store.objects.get(at)
        if kind.model and request.method == "PUT" and request.params.get("fieldValidation") == "Strict":
            self._check_fields(kind, request.body, request.params)
        if there is None:
            return self._missing(kind, at, namespace, request, light=light)
        match request.method:
            case "GET":
                return self._shown(200, there, light)
            case "PUT":
                return self._shown(200, self._replace(kind, at, there, request), light)
            case "PATCH":
                return self._shown(200, self._patch(kind, at, there, request), light)
            case "DELETE":
                left = self._delete(kind, at, there, request.body)
                return self._shown(200, left, light) if at in self.store.objects else Answer(200, _deleted(kind, left))
        raise NOT_ALLOWED

    def _missing(self, kind, at, namespace, request, *, light):
        """Answer a request about an object that is not there. Some requests create it."""
        if request.content_type == APPLY and not request.sub:
            return self._shown(201, self._create(kind, namespace, request.body, request.params), light)
        if request.method == "PUT" and kind.kind == "Lease" and (wanted := request.body["metadata"].get("uid")):
            raise other_uid(wanted, "")  # a Lease may be created by a PUT, but not one with a uid
        raise not_found(kind, at.rpartition("/")[2])

    def _shown(self, code, body, light):
        return Answer(code, partial(body) if light else body)

    def _review(self, body):
        token = body["spec"]["token"]
        return {**body, "status": self.reviews.get(token, {"authenticated": False, "error": "unknown token"})}

    # reading

    def _list(self, kind, namespace, params, light):
        selects = self._selects(kind, params)
        limit, start, at = int(params.get("limit", 0)), "", self.store.version
        if rest := params.get("continue"):
            at, start = orjson.loads(base64.b64decode(rest))
            if at < self.store.compacted:
                resume = token(-1, start)
                said = "The provided continue parameter is too old to display a consistent list result."
                raise Refused(410, "Expired", said, resume=resume)
            if at < 0:
                at = self.store.version
        prefix = _below(kind, namespace)
        found = self._as_of(kind, prefix, at)
        paths = [path for path in sorted(found) if path > start and selects(found[path])]
        some = paths[:limit] if limit else paths
        meta = {"resourceVersion": str(at)}
        if len(some) < len(paths):
            meta["continue"] = token(at, some[-1])
            if not (params.get("labelSelector") or params.get("fieldSelector")):
                meta["remainingItemCount"] = len(paths) - len(some)
        items = [partial(found[path]) if light else _item(kind, found[path]) for path in some]
        named = "PartialObjectMetadataList" if light else f"{kind.kind}List"
        group = "meta.k8s.io/v1" if light else kind.version
        return Answer(200, {"kind": named, "apiVersion": group, "metadata": meta, "items": items})

    def _as_of(self, kind, prefix, version):
        """Return the objects of a kind as they were at a version, by path."""
        found = {path: body for path, body in self.store.objects.items() if _is_in(path, kind, prefix)}
        for event in reversed(self.store.since(kind.resource, version) if version < self.store.version else ()):
            if not _is_in(event.path, kind, prefix):
                continue
            if event.before is None:
                found.pop(event.path, None)
            else:
                found[event.path] = event.before
        return found

    def _selects(self, kind, params):
        """Return whether a body is among those that were asked for."""
        fields = [_requirement(kind, text) for text in filter(None, params.get("fieldSelector", "").split(","))]
        labels = [_label(text) for text in filter(None, params.get("labelSelector", "").split(","))]

        def selects(body):
            has = body["metadata"].get("labels") or {}
            return all((_field(body, path) == value) == equal for path, value, equal in fields) and all(
                holds(has) for holds in labels
            )

        return selects

    def _watch(self, kind, namespace, params, light):
        selects, prefix = self._selects(kind, params), _below(kind, namespace)
        wanted = lambda path, body: _is_in(path, kind, prefix) and selects(body)  # noqa: E731
        version = int(params.get("resourceVersion") or 0)
        initial = params.get("sendInitialEvents") == "true"
        if initial and params.get("resourceVersionMatch") != "NotOlderThan":
            said = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch"
            raise Refused(422, "Invalid", said)
        return Watching(
            kind,
            wanted,
            version,
            float(params.get("timeoutSeconds", 1800)),
            initial=initial or not version,
            bookmarks=params.get("allowWatchBookmarks") in {"1", "true"},
            light=light,
        )

    # writing

    def _create(self, kind, namespace, body, params):
        meta = dict(body.get("metadata") or {})
        if "name" not in meta:
            meta["name"] = f"{meta.pop('generateName')}{next(self._uids):05d}"
        name = meta["name"]
        if kind.namespaced:
            if meta.setdefault("namespace", namespace) != namespace:
                said = "the namespace of the provided object does not match the namespace sent on the request"
                raise Refused(400, "BadRequest", said)
            self._check_namespace(kind, namespace, name)
        at = f"{_below(kind, namespace)}/{name}"
        meta |= {"uid": f"{kind.kind.lower()}-{next(self._uids)}", "creationTimestamp": self._time()}
        meta.pop("resourceVersion", None)
        if kind.has_status or kind.model:
            meta["generation"] = 1
        made = {"kind": kind.kind, "apiVersion": kind.version, **body, "metadata": meta}
        if kind.has_status:
            made.pop("status", None)
        if kind.kind == "Pod":
            made["status"] = {"phase": "Pending"}
        return self._store(kind, at, made, None, params)

    def _check_namespace(self, kind, namespace, name):
        there = self.store.objects.get(f"/api/v1/namespaces/{namespace}")
        if there is None:
            said = f'namespaces "{namespace}" not found'
            raise Refused(404, "NotFound", said, name=namespace, kind="namespaces")
        if "deletionTimestamp" in there["metadata"]:
            said = f'{kind.plural} "{name}" is forbidden: unable to create new content in namespace {namespace} because it is being terminated'  # noqa: E501  the server's sentence
            raise Refused(403, "Forbidden", said, causes=[{"reason": "NamespaceTerminating", "message": said}])

    def _replace(self, kind, at, there, request):
        body = request.body
        meta, old = body.get("metadata") or {}, there["metadata"]
        if meta.get("uid") not in {None, "", old["uid"]}:
            raise other_uid(meta["uid"], old["uid"])
        if meta.get("resourceVersion") not in {None, "", old["resourceVersion"]}:
            raise conflict(kind, old["name"])
        return self._change(kind, at, there, body, request)

    def _patch(self, kind, at, there, request):
        patch = request.body
        name = there["metadata"]["name"]
        if request.content_type == JSON_PATCH:
            # the API server takes what is not there for null
            steps = [step for step in patch if not (_tests_null(step) and _absent(there, step["path"]))]
            try:
                body = jsonpatch.apply_patch(orjson.loads(orjson.dumps(there)), steps)
            except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
                said = "the server rejected our request due to an error in our request"
                raise Refused(422, "Invalid", said) from error
        else:
            body = merged(there, patch)
        meta, old = body["metadata"], there["metadata"]
        if meta.get("uid") != old["uid"]:
            raise invalid(kind, name, [("metadata.uid", "field is immutable")])
        if meta.get("resourceVersion") != old["resourceVersion"]:
            raise conflict(kind, name)
        return self._change(kind, at, there, body, request)

    def _change(self, kind, at, there, body, request):
        """Store a new state of an object: its status alone, or all but its status."""
        old = there["metadata"]
        if request.sub == "status":
            made = {**there, "status": body["status"]} if "status" in body else _without(there, "status")
        else:
            fixed = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
            meta = {**(body.get("metadata") or {}), **{name: old[name] for name in fixed if name in old}}
            meta = {name: value for name, value in meta.items() if name in old or name not in fixed}
            made = {**body, "metadata": {**meta, "name": old["name"]}}
            if "namespace" in old:
                made["metadata"]["namespace"] = old["namespace"]
            if kind.has_status:
                made = {**made, "status": there["status"]} if "status" in there else _without(made, "status")
        return self._store(kind, at, made, there, request.params)

    def _store(self, kind, at, body, before, params):
        """Admit, check and store a body; return it as it is stored."""
        dry = params.get("dryRun") == "All"
        name = body["metadata"]["name"]
        if kind.model:
            body = self._check_fields(kind, body, params)
        body = self._admitted(kind, body, before, dry=dry)
        meta = body["metadata"] = {name: part for name, part in body["metadata"].items() if part not in ([], {})}
        if before is None and at in self.store.objects:
            raise Refused(409, "AlreadyExists", f'{kind.plural} "{name}" already exists', name=name, kind=kind.plural)
        if before is not None:
            meta.pop("resourceVersion", None)
            old = {**before, "metadata": _without(before["metadata"], "resourceVersion")}
            if body == old:
                return before
            if "generation" in meta and _asked(body) != _asked(before):
                meta["generation"] += 1
            if "deletionTimestamp" in meta and not meta.get("finalizers") and kind.kind != "Pod":
                return self._remove(kind, at, body)
        if dry:
            return (
                body
                if before is None
                else {**body, "metadata": {**meta, "resourceVersion": before["metadata"]["resourceVersion"]}}
            )
        meta["resourceVersion"] = str(self.store.next())
        self.store.put(kind.resource, at, body)
        return body

    def _admitted(self, kind, body, before, *, dry):
        """Let admission change or refuse a body, and check the rules of its kind."""
        body = orjson.loads(orjson.dumps(body))
        for admit in self.admit:
            body = admit(kind, body, before, dry)
        if kind.model:
            try:
                validate(kind, body, before)
            except Invalid as error:
                raise invalid(kind, body["metadata"]["name"], error.causes) from None
        return body

    @staticmethod
    def _check_fields(kind, body, params):
        """Return a body without unknown fields, and with defaults. Unknown ones may be forbidden."""
        body, unknown = shaped(kind, body)
        if unknown and params.get("fieldValidation") == "Strict":
            said = ", ".join(f'unknown field "{field}"' for field in unknown)
            raise Refused(400, "BadRequest", f"{kind.kind} in version v1alpha1 cannot be handled: {said}")
        return body

    def _delete(self, kind, at, there, options):
        meta = there["metadata"]
        wanted = options.get("preconditions") or {}
        if wanted.get("uid") not in {None, meta["uid"]}:
            raise other_uid(wanted["uid"], meta["uid"])
        if kind.kind == "Pod":
            return self._delete_pod(kind, at, there, options.get("gracePeriodSeconds"))
        if kind.kind == "Namespace" and "deletionTimestamp" not in meta:
            status = {**there.get("status", {}), "phase": "Terminating"}
            return self._mark(kind, at, {**there, "status": status}, {"deletionTimestamp": self._time()})
        if meta.get("finalizers"):
            if "deletionTimestamp" in meta:
                return there
            return self._mark(kind, at, there, {"deletionTimestamp": self._time(), "deletionGracePeriodSeconds": 0})
        return self._remove(kind, at, there)

    def _delete_pod(self, kind, at, there, grace):
        """Delete a pod: at once if no kubelet has it, else when its kubelet has ended it."""
        meta = there["metadata"]
        if grace is None:
            grace = there["spec"].get("terminationGracePeriodSeconds", GRACE)
        if not there["spec"].get("nodeName") or there["status"]["phase"] in ENDED:
            grace = 0
        if grace > 0 and meta.get("deletionGracePeriodSeconds", grace + 1) <= grace:
            return there  # it ends as soon already
        deleted = {"deletionTimestamp": self._time(grace), "deletionGracePeriodSeconds": grace}
        there = self._mark(kind, at, there, deleted)
        if grace == 0 and not meta.get("finalizers"):
            return self._remove(kind, at, there)
        return there

    def _mark(self, kind, at, there, deleted):
        meta = {**there["metadata"], **deleted, "resourceVersion": str(self.store.next())}
        if "generation" in meta:
            meta["generation"] += "deletionTimestamp" not in there["metadata"]
        made = {**there, "metadata": meta}
        self.store.put(kind.resource, at, made)
        return made

    def _remove(self, kind, at, body):
        last = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.store.next())}}
        self.store.remove(kind.resource, at, last)
        return last

    def _time(self, later=0):
        return written(self.now() + later)

    # what machines of the control plane do: no request, no admission

    def set(self, kind, at, **parts):
        """Set whole parts of an object (``status=…``), as a controller or a kubelet does. It must be there."""
        there = self.store.objects[at]
        made = {**there, **parts}
        if made == there:
            return there
        made["metadata"] = {**made["metadata"], "resourceVersion": str(self.store.next())}
        self.store.put(kind.resource, at, made)
        return made

    def renewed(self, body):
        """Return a body with a version of its own."""
        return {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.store.next())}}

    def drop(self, kind, at):
        """Let an object be gone, whatever its finalizers."""
        if at in self.store.objects:
            self._remove(kind, at, self.store.objects[at])

    def date(self):
        """Return the header Date."""
        return _date(int(self.now()))


@functools.lru_cache(maxsize=16)
def _date(seconds):
    return email.utils.formatdate(seconds, usegmt=True)


def partial(body):
    """Return the metadata of an object only."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": body["metadata"]}


def merged(there, patch):
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    made = dict(there) if isinstance(there, dict) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name), value)
    return made


def _tests_null(step):
    return step["op"] == "test" and step.get("value") is None


def _absent(body, pointer):
    return jsonpointer.resolve_pointer(body, pointer, None) is None


def _asked(body):
    return {name: part for name, part in body.items() if name not in {"metadata", "status"}}


def _without(body, name):
    return {key: value for key, value in body.items() if key != name}


def _below(kind, namespace):
    group = f"/{'apis' if '/' in kind.version else 'api'}/{kind.version}"
    return (
        f"{group}/namespaces/{namespace}/{kind.plural}" if namespace and kind.namespaced else f"{group}/{kind.plural}"
    )


def _is_in(path, kind, prefix):
    """Return whether an object is in a collection: of one namespace, or of all."""
    if path.startswith(prefix + "/"):
        return kind.namespaced or path.count("/") == prefix.count("/") + 1
    if not kind.namespaced or prefix != kind.resource:
        return False
    head = f"{prefix[: -len(kind.plural)]}namespaces/"
    return path.startswith(head) and path.rsplit("/", 2)[1] == kind.plural and path.count("/") == head.count("/") + 2


def _deleted(kind, body):
    """Return the answer to the deletion of an object that is gone at once."""
    if kind.kind == "Pod":
        return body
    details = {"name": body["metadata"]["name"], "kind": kind.plural, "uid": body["metadata"]["uid"]}
    if "/" in kind.version:
        details["group"] = kind.version.partition("/")[0]
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _item(kind, body):
    """Return an object as it stands in a list: those of Kubernetes' own kinds do not name their kind there."""
    return body if kind.model else {name: part for name, part in body.items() if name not in {"kind", "apiVersion"}}


def token(version, start):
    """Return the continue token of a list of that version, after a path."""
    return base64.b64encode(orjson.dumps([version, start])).decode()


def _requirement(kind, text):
    path, equal, value = re.fullmatch(r"([^=!]+)(!=|==?)(.*)", text).groups()
    if path not in {"metadata.name", "metadata.namespace", *kind.selectable}:
        raise Refused(400, "BadRequest", f"field label not supported: {path}")
    return path, value, equal != "!="


def _field(body, path):
    for name in path.split("."):
        body = body.get(name) if isinstance(body, dict) else None
    return "" if body is None else str(body)


def _label(text):
    if (found := re.fullmatch(r"([^=!]+)(!=|==?)(.*)", text)) is None:
        name = text.removeprefix("!")
        return lambda labels: (name in labels) != text.startswith("!")
    name, equal, value = found.groups()
    return lambda labels: (labels.get(name) == value) == (equal != "!=")
