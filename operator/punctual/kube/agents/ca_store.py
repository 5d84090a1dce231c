"""Stores the authority in a Secret and its certificates in a ConfigMap, both in the operator's own namespace."""

import base64
import binascii
from typing import Any, Protocol

from punctual.errors import Conflict, NotFound

FIELD = "ca.crt"
"""Key of the ConfigMap, and the name of the file that agents read."""


class Api(Protocol):
    """The calls of the API client that the store uses."""

    async def get(self, path: str) -> dict[str, Any]:
        """Read an object. Raises NotFound."""

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object. Raises AlreadyExists."""

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Replace this version of an object. Raises Conflict or NotFound."""


class ClusterCaStore:
    """Stores Secret and ConfigMap under one name.

    Every write names the version that was read, so no replica undoes another's step.
    """

    def __init__(self, api: Api, namespace: str, name: str = "punctual-ca") -> None:
        self._api = api
        self._name = name
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self._maps = f"/api/v1/namespaces/{namespace}/configmaps"
        self._map_version: str | None = None
        self._owner: str | None = None
        self._labels: dict[str, dict[str, Any]] = {}  # labels of the Secret, by field: the chart's labels are kept

    async def read(self) -> tuple[dict[str, str], str] | None:
        """Return the Secret's content and its version, or None if it does not exist."""
        try:
            secret = await self._api.get(f"{self._secrets}/{self._name}")
        except NotFound:
            return None
        self._labels = {k: v for k, v in secret["metadata"].items() if k in {"labels", "annotations"}}
        return {k: _decode(v) for k, v in (secret.get("data") or {}).items()}, secret["metadata"]["resourceVersion"]

    async def write(self, data: dict[str, str], *, version: str | None) -> bool:
        """Create the Secret (version None) or replace that version of it.

        Returns False if another replica wrote first.
        """
        secret = self._object("Secret", version) | {
            "type": "Opaque",
            "data": {k: base64.b64encode(v.encode()).decode() for k, v in data.items()},
        }
        if version is not None:
            secret["metadata"] |= self._labels
        written = await self._put(self._secrets, secret, version)
        if written is None:
            return False
        self._owner = written["metadata"]["uid"]
        return True

    async def published(self) -> str | None:
        """Return the certificates that agents get now."""
        try:
            found = await self._api.get(f"{self._maps}/{self._name}")
        except NotFound:
            self._map_version = None
            return None
        self._map_version = found["metadata"]["resourceVersion"]
        return str((found.get("data") or {}).get(FIELD, ""))

    async def publish(self, bundle: str) -> None:
        """Publish these certificates in place of those read last.

        A write that lost a race is repeated by the next call.

        The labels are those of the Secret, because agents of another installation must not start with certificates of
        this one.
        """
        body = self._object("ConfigMap", self._map_version) | {"data": {FIELD: bundle}}
        if self._owner is not None:
            owner = {"apiVersion": "v1", "kind": "Secret", "name": self._name, "uid": self._owner}
            body["metadata"]["ownerReferences"] = [owner]
        await self._put(self._maps, body, self._map_version)

    def _object(self, kind: str, version: str | None) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": self._name, "labels": {"app.kubernetes.io/managed-by": "punctual"}}
        if version is not None:
            metadata |= {"resourceVersion": version}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata}

    async def _put(self, collection: str, body: dict[str, Any], version: str | None) -> dict[str, Any] | None:
        try:
            if version is None:
                return await self._api.create(collection, body)
            return await self._api.replace(f"{collection}/{self._name}", body)
        except (Conflict, NotFound):  # created, changed or deleted in between
            return None


def _decode(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""  # not written by the operator; Trust.from_data raises the error
