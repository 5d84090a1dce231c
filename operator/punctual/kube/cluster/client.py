"""The Kubernetes API client of informer, writer, elector and event recorder, on aiohttp and orjson.

The `kubernetes` package finds the server and the credentials (in-cluster, kubeconfig, client certificates, tokens, exec
plugins). This module makes the calls. Every call has a deadline, every failure becomes one class of
:mod:`punctual.errors`, and every answer's ``Date`` feeds the `ServerClock`. No call is repeated (except once after a
401, with new credentials), because only the caller knows whether a repetition is harmless.

A client belongs to one event loop. Threads create their own and may share the clock.
"""

import asyncio
import contextlib
import functools
import re
import socket
import time
import weakref
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from punctual import errors
from punctual.kube.api.decode import decode
from punctual.kube.api.meta import EPOCH_NEVER_FALLS
from punctual.kube.api.resources import TOKEN_REVIEWS
from punctual.kube.cluster.access import Access, load_access
from punctual.kube.known.oversize import LARGEST, lightened
from punctual.runtime.clock import ServerClock

Json = dict[str, Any]
JsonList = list[Json]

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

CREDENTIALS_AGE = 30.0
"""Seconds after which credentials are read again. A projected token file is rotated long before it expires."""

SOON = 0.2
"""Seconds until the next try if the server gave no Retry-After."""

PAGE = 500
"""Maximum objects in a page of a list."""
FIRST_PAGE = 32
"""Objects of the first page, which shows how large they are."""
PAGE_BYTES = 4 * 2**20
"""Maximum bytes of JSON read for a page. The decoded page may take 27 times the memory."""

PATIENCE = 30.0
"""Maximum seconds for which a Retry-After is followed. A promise must not wait for a proxy's maintenance window."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Objects of a collection at one resource version."""

    items: list[Json]
    resource_version: str
    rest: str = ""
    """Continue token of the following objects. Empty: there are none."""
    left: int = 0
    """How many these are, if the server says so."""


class ApiClient:
    """Calls to one API server: ``async with ApiClient(kubeconfig) as client: await client.get("/version")``.

    ``deadline`` limits one call, in seconds, from the request to the last byte of the answer (a watch has its own).
    With ``keep`` False each call uses a new connection, which may reach another of several servers. All calls raise the
    subclass of ClusterError for the answer's status, and Unreachable without an answer.
    """

    _load = staticmethod(load_access)

    def __init__(
        self,
        kubeconfig: str | None = None,
        *,
        clock: ServerClock | None = None,
        deadline: float = 10.0,
        user_agent: str = "punctual",
        keep: bool = True,
    ) -> None:
        self.clock = clock or ServerClock()
        self.listed: dict[str, str] = {}
        """The newest resource version at which a collection, by path, was read in full (`walk`)."""
        self._kubeconfig = kubeconfig
        self._deadline = deadline
        self._keep = keep
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._renewal = asyncio.Lock()
        self._access: Access | None = None
        self._token: str | None = None
        self._renewed = float("-inf")
        self._session: aiohttp.ClientSession | None = None
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._base = ""
        self._proxy: str | None = None
        self._server_name: str | None = None

    async def __aenter__(self) -> Self:
        access = self._access = await asyncio.to_thread(self._load, self._kubeconfig)
        self._base, self._proxy, self._server_name = access.server, access.proxy, access.server_name
        self._session = self._connect(access)
        return self

    def _connect(self, access: Access) -> aiohttp.ClientSession:
        """Return the session that sends the requests."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=access.tls() if self._base.startswith("https") else False,
                socket_factory=self._socket,
                force_close=not self._keep,
            ),
            timeout=aiohttp.ClientTimeout(total=self._deadline),
            read_bufsize=2**18,  # a list of pods is megabytes long
            auto_decompress=False,
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Open watches end with Unreachable."""
        if self._session is None:
            return
        await self._session.close()
        # An unanswered TLS close outlives a watch that was left early, and a call that was cancelled as its handshake
        # completed.
        # The session no longer knows either connection, and the loop may end first.
        for made in self._sockets:
            with contextlib.suppress(OSError):  # closed, or closed by its other end
                made.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                while any(made.fileno() >= 0 for made in self._sockets):  # noqa: ASYNC110  no event tells when
                    await asyncio.sleep(0)

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        self._sockets.add(made := socket.socket(*address[:3]))
        return made

    # reading

    async def get(
        self, path: str, *, params: Mapping[str, str] | None = None, deadline: float | None = None, accept: str = JSON
    ) -> Json:
        """Return one object, or any other JSON at the path."""
        return await self._call("GET", path, params=params, deadline=deadline, accept=accept)

    async def metadata(self, path: str) -> Json:
        """Return the metadata of one object; its spec and status are not sent."""
        found: Json = (await self._call("GET", path, accept=METADATA))["metadata"]
        return found

    async def list(self, path: str, *, label_selector: str = "", field_selector: str = "", page: int = PAGE) -> Listing:
        """Return all objects of a collection, fetched by pages.

        Raises Gone if the server dropped the list meanwhile.
        """
        items: list[Json] = []
        version = ""
        async for some in self.pages(path, label_selector=label_selector, field_selector=field_selector, page=page):
            items += some.items
            version = some.resource_version
        return Listing(items, version)

    async def pages(
        self,
        path: str,
        *,
        label_selector: str = "",
        field_selector: str = "",
        page: int = PAGE,
        accept: str = JSON,
        start: str = "",
    ) -> AsyncGenerator[Listing, None]:
        """Fetch a collection page by page, so that the bodies are not in memory all at once.

        With ``accept`` `METADATA_LIST`, only the metadata of each object is fetched. A page has at most ``page``
        objects, and fewer if it would exceed `PAGE_BYTES`. A page that is larger, or not complete in time, is requested
        again in parts. ``start`` is the first continue token (`Listing.rest`).
        """
        params = _selectors(label_selector, field_selector)
        if start:
            params["continue"] = start
        limit = min(page, FIRST_PAGE)
        while True:
            params["limit"] = str(limit)
            most = PAGE_BYTES if limit > 1 else None
            try:
                data = await self._data("GET", path, params=params, accept=accept, most=most)
            except _TooLargeError:
                limit = max(1, limit // 4)
                continue
            except errors.Unreachable as error:
                if limit == 1 or not isinstance(error.__cause__, TimeoutError):
                    raise
                # a server may need seconds for an object of 1 MB, so the smaller page size stays until the end of the
                # list
                page = limit = max(1, limit // 4)
                continue
            if 2 * len(data) <= PAGE_BYTES:
                limit = min(page, 2 * limit)
            answer = _object(path, data)
            del data
            meta = answer["metadata"]
            rest = meta.get("continue") or ""
            left = meta.get("remainingItemCount") or 0
            yield Listing(answer.get("items") or [], meta["resourceVersion"], rest, left)
            if not rest:
                return
            params["continue"] = rest

    async def first(self, path: str, *, field_selector: str = "") -> Listing:
        """Fetch the metadata of one object of a collection, and how many more there are."""
        pages = self.pages(path, field_selector=field_selector, page=1, accept=METADATA_LIST)
        async with contextlib.aclosing(pages):
            return await anext(pages)

    async def watch(
        self,
        path: str,
        *,
        resource_version: str = "",
        field_selector: str = "",
        seconds: int = 12,
        silence: float = 15.0,
        initial: bool = False,
    ) -> AsyncGenerator[Json, None]:
        """Yield the events of a collection since ``resource_version``, bookmarks included, as ``{"type", "object"}``.

        The server ends the watch normally after ``seconds``. If nothing changes, this end is the only proof that the
        connection is alive (the server sends no bookmark before the first change). No byte for ``silence`` seconds
        raises Unreachable. With ``initial``, the server first sends the existing objects and then a bookmark
        (watch-list). It raises Invalid if the server cannot. Raises Gone if the resource version is too old. Close the
        generator (``contextlib.aclosing``) when leaving early.
        """
        params = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        if field_selector:
            params["fieldSelector"] = field_selector
        if initial:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        if resource_version:
            params["resourceVersion"] = resource_version
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._deadline, sock_read=silence)
        try:
            response = await self._send("GET", path, params=params, timeout=timeout)
            try:
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")  # readline() would refuse objects above 256 kB
                    for line in lines:
                        yield _event(path, line)
            finally:
                response.close()  # it may be partly read
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unreachable(path, error) from error

    # writing

    async def create(
        self, path: str, body: Json, *, field_manager: str = "", dry_run: bool = False, strict: bool = False
    ) -> Json:
        """Create an object in a collection, or post to a subresource (``…/token``, ``…/eviction``).

        With ``strict``, unknown fields are an error (Invalid). Otherwise the server ignores them.
        """
        params = _writing(field_manager, dry_run=dry_run, strict=strict)
        return await self._call("POST", path, params=params, body=body)

    async def replace(self, path: str, body: Json) -> Json:
        """Put an object over its ``metadata.resourceVersion`` (else Conflict) and ``uid`` (else Replaced) only."""
        return await self._call("PUT", path, body=body)

    async def put_status(self, path: str, body: Json, *, field_manager: str, deadline: float | None = None) -> Json:
        """Put an object's whole status, over the same version as in `replace`. Unknown fields are an error (Invalid).

        Returns the object's metadata. The answer has no more: a spec of 1 MB would take up to 27 MiB once it is read.
        """
        params = _writing(field_manager, strict=True)
        path = _below(path, "status")
        return await self._call("PUT", path, params=params, body=body, deadline=deadline, accept=METADATA)

    async def apply(self, path: str, body: Json | bytes, *, field_manager: str, subresource: str = "") -> Json:
        """Server-side apply: set this manager's fields to those of ``body`` (a dict, or JSON already), by force.

        It creates a missing object, except through a subresource (NotFound). Raises Fenced if the stored status carries
        a higher epoch, and Replaced if ``metadata.uid`` of the body differs from the object's.
        """
        params = _writing(field_manager) | {"force": "true"}
        data = _for_yaml(body if isinstance(body, bytes) else orjson.dumps(body))
        return await self._call("PATCH", _below(path, subresource), params=params, body=data, content_type=APPLY)

    async def patch_merge(
        self, path: str, body: Json, *, subresource: str = "", field_manager: str = "", deadline: float | None = None
    ) -> Json:
        """Send a merge patch.

        Preconditions are ``metadata.uid`` (Replaced) and ``metadata.resourceVersion`` (Conflict).
        """
        params = _writing(field_manager)
        path = _below(path, subresource)
        return await self._call("PATCH", path, params=params, body=body, content_type=MERGE, deadline=deadline)

    async def patch_json(
        self,
        path: str,
        operations: JsonList,
        *,
        subresource: str = "",
        field_manager: str = "",
    ) -> Json:
        """Send a JSON patch (RFC 6902). A failed ``test`` operation raises Invalid."""
        body = orjson.dumps(operations)
        params = _writing(field_manager)
        return await self._call("PATCH", _below(path, subresource), params=params, body=body, content_type=JSON_PATCH)

    async def delete(self, path: str, *, uid: str = "", grace: float | None = None, propagation: str = "") -> Json:
        """Delete an object, only of this ``uid`` (else Replaced), with a grace period of ``grace`` whole seconds."""
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace is not None:
            body["gracePeriodSeconds"] = round(grace)
        if propagation:
            body["propagationPolicy"] = propagation
        return await self._call("DELETE", path, body=body)

    async def review_token(self, token: str, audiences: tuple[str, ...]) -> Json:
        """Return the status of a TokenReview: ``authenticated``, ``user``, ``audiences``, ``error``."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": list(audiences)},
        }
        status: Json = (await self.create(TOKEN_REVIEWS.path(), body)).get("status", {})
        return status

    # transport

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Json | bytes | None = None,
        content_type: str = JSON,
        deadline: float | None = None,
        accept: str = JSON,
    ) -> Json:
        data = body if isinstance(body, bytes | None) else orjson.dumps(body)
        return _object(
            path,
            await self._data(
                method, path, params=params, data=data, content_type=content_type, deadline=deadline, accept=accept
            ),
        )

    async def _data(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        data: bytes | None = None,
        content_type: str = JSON,
        deadline: float | None = None,
        accept: str = JSON,
        most: int | None = None,
    ) -> bytes:
        """Return the answer. Raises _TooLargeError if it has more than ``most`` bytes."""
        timeout = aiohttp.ClientTimeout(total=self._deadline if deadline is None else deadline)
        try:
            async with await self._send(
                method, path, params=params, data=data, content_type=content_type, timeout=timeout, accept=accept
            ) as response:
                if most is None:
                    return await response.read()
                parts, size = [], 0
                async for part in response.content.iter_any():
                    size += len(part)
                    if size > most:
                        response.close()  # the rest is not read
                        raise _TooLargeError
                    parts.append(part)
                return b"".join(parts)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unreachable(path, error) from error

    async def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  aiohttp's own
        data: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> aiohttp.ClientResponse:
        """Return an answer with a success status. The caller reads and releases it."""
        if self._session is None:
            raise errors.ClusterError("the client is not open: use it in `async with`")
        for again in (False, True):
            headers = {**self._headers, "Accept": accept, **await self._authorization(renew=again)}
            if data is not None:
                headers["Content-Type"] = content_type
            sent = time.monotonic()
            response = await self._session.request(
                method,
                self._base + path,
                params=params,
                data=data,
                headers=headers,
                timeout=timeout,
                proxy=self._proxy,
                server_hostname=self._server_name,
                allow_redirects=False,
            )
            self._tell_time(response, sent)
            if response.status < 300:
                return response
            async with response:
                error = _refusal(response.status, await _status(response), response.headers.get("Retry-After"))
            if again or not isinstance(error, errors.Unauthorized):
                break
        raise error

    def _tell_time(self, response: aiohttp.ClientResponse, sent: float) -> None:
        try:
            date = _seconds(response.headers.get("Date", ""))
        except (ValueError, OverflowError):
            return
        self.clock.observe(date, sent=sent, received=time.monotonic())

    async def _authorization(self, *, renew: bool) -> dict[str, str]:
        """Return the authorization header. Credentials are renewed in a thread, because a plugin may take long."""
        asked = time.monotonic()
        if renew or asked - self._renewed > CREDENTIALS_AGE:
            async with self._renewal:
                if asked > self._renewed:  # otherwise another call renewed them while this one waited
                    if renew or self._access is None:
                        self._access = await asyncio.to_thread(self._load, self._kubeconfig)
                    self._token = await asyncio.to_thread(self._access.credentials.authorization)
                    self._renewed = time.monotonic()
        return {"Authorization": self._token} if self._token else {}


@functools.lru_cache(maxsize=16)  # of all answers within a second it is the same
def _seconds(date: str) -> float:
    """Return a header's date in epoch seconds. Raises ValueError or OverflowError if it is none."""
    return parsedate_to_datetime(date).timestamp()


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    asked = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in asked.items() if value}


def _writing(field_manager: str, *, dry_run: bool = False, strict: bool = False) -> dict[str, str]:
    asked = {
        "fieldManager": field_manager,
        "dryRun": "All" if dry_run else "",
        "fieldValidation": "Strict" if strict else "",
    }
    return {name: value for name, value in asked.items() if value}


_NOT_YAML = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|\xef\xbb\xbf|\xef\xbf[\xbe\xbf]")
"""UTF-8 that JSON accepts but YAML refuses (control characters, U+FEFF, U+FFFE) or folds (line breaks)."""


def _for_yaml(data: bytes) -> bytes:
    """Return the JSON in a form that is also valid YAML.

    The API server parses the body of an apply as YAML, and users may write any text.
    """
    return _NOT_YAML.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), data)


def _below(path: str, subresource: str) -> str:
    return f"{path}/{subresource}" if subresource else path


class _TooLargeError(Exception):
    """A page has more bytes than may be read at once."""


def _object(path: str, data: bytes) -> Json:
    """Decode a JSON object.

    Other content does not come from the API server. It cuts out job specs that are too large.
    """
    try:
        found = decode(data)
    except orjson.JSONDecodeError as error:
        raise errors.Unreachable(f"{path}: the answer is not JSON", retry_after=SOON) from error
    if not isinstance(found, dict):
        raise errors.Unreachable(f"{path}: the answer is not a JSON object", retry_after=SOON)
    return lightened(found) if len(data) > LARGEST else found


def _event(path: str, line: bytes) -> Json:
    """Decode an event of a watch. An event of type ERROR is raised as an exception."""
    event = _object(path, line)
    if "type" not in event or not isinstance(event.get("object"), dict):
        raise errors.Unreachable(f"{path}: the watch sent data that is not an event", retry_after=SOON)
    if len(line) > LARGEST:
        event["object"] = lightened(event["object"])
    if event["type"] == "ERROR":
        raise _refusal(event["object"].get("code", 500), event["object"])
    return event


async def _status(response: aiohttp.ClientResponse) -> Json:
    """Read the Status object that explains a refusal. Proxies answer with other content."""
    text = await response.read()
    try:
        status = orjson.loads(text)
    except orjson.JSONDecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return status
    return {"message": text[:500].decode(errors="replace").strip()}


def _refusal(code: int, status: Json, retry_after: str | None = None) -> errors.ClusterError:  # noqa: C901, PLR0911  a table
    """Map a status to an exception. This is the only place that does."""
    details = status.get("details") or {}
    causes = details.get("causes") or ()
    message = status.get("message") or f"status {code}"
    match code:
        case 401:
            return errors.Unauthorized(message)
        case 403:
            return errors.NoRight(message) if _NO_RIGHT.search(message) else errors.Forbidden(message)
        case 404:
            return errors.NotFound(message)
        case 409 if status.get("reason") == "AlreadyExists":
            return errors.AlreadyExists(message)
        case 409 if any(words in message for words in _OTHER_UID):
            return errors.Replaced(message)
        case 409:
            return errors.Conflict(message)
        case 410:
            return errors.Gone(message, resume=str((status.get("metadata") or {}).get("continue") or ""))
        case 500 if message.startswith("failed to create typed patch object") or "request is too large" in message:
            # an apply against the schema, or an object too large for etcd: the server's status code is wrong here
            return errors.Invalid(message)
        case _ if code in {408, 429} or code >= 500:
            asked = retry_after if retry_after and retry_after.isdecimal() else details.get("retryAfterSeconds")
            return errors.Busy(message, retry_after=min(float(asked or SOON), PATIENCE))
        case 422 if any(_is_fence(cause) for cause in causes):
            return errors.Fenced(message)
        case 422 if any(cause.get("field") == "metadata.uid" for cause in causes):
            # a patch with another uid than the object's; other verbs return 409
            return errors.Replaced(message)
        case _:
            return errors.Invalid(message)


RIGHTS = 6
"""Tries after a refusal by RBAC, some six seconds: a server that starts has not read its RBAC rules."""
_NO_RIGHT = re.compile(r'forbidden: User ".*" cannot ', re.DOTALL)
"""The authorizer's message. Admission plugins use the same reason and code, but do not name a user first."""
_OTHER_UID = ("UID in precondition", "UID in the precondition", "uid mismatch:")
"""The API server's messages about a uid. The message also has names in it, but no name can look like these."""


def _is_fence(cause: Json) -> bool:
    """Return whether the status reports that the CEL rule on the epoch failed. Its message says so."""
    return EPOCH_NEVER_FALLS.message in cause.get("message", "")


def _unreachable(path: str, error: Exception) -> errors.Unreachable:
    return errors.Unreachable(f"{path}: no answer: {str(error) or type(error).__name__}", retry_after=SOON)
