"""Resources of the Kubernetes API that Punctual uses, and their paths.

Importing this module needs no API client, so programs without one (``punctual plan``) can share code with the operator.
"""

from dataclasses import dataclass
from typing import Final

from punctual.kube.api.base import API_VERSION


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the API, such as ``Resource("punctual.dev/v1alpha1", "pools")``."""

    version: str
    """Group and version, or "v1" for the core group."""
    plural: str

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of the collection, of a namespace's part of it, of one object, or of a subresource."""
        parts = [f"/{'apis' if '/' in self.version else 'api'}/{self.version}"]
        if namespace:
            parts.append(f"namespaces/{namespace}")
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


POOLS: Final = Resource(API_VERSION, "pools")
JOBS: Final = Resource(API_VERSION, "divisiblejobs")
PROFILES: Final = Resource(API_VERSION, "profiles")
RESERVATIONS: Final = Resource(API_VERSION, "reservations")
TARGET_RATES: Final = Resource(API_VERSION, "targetrates")

BATCH_JOBS = Resource("batch/v1", "jobs")
CONFIG_MAPS = Resource("v1", "configmaps")
NODES = Resource("v1", "nodes")
PODS = Resource("v1", "pods")
CLAIMS = Resource("v1", "persistentvolumeclaims")
VOLUMES = Resource("v1", "persistentvolumes")
STORAGE_CLASSES = Resource("storage.k8s.io/v1", "storageclasses")
LEASES = Resource("coordination.k8s.io/v1", "leases")
EVENTS = Resource("events.k8s.io/v1", "events")
ACCESS_REVIEWS = Resource("authorization.k8s.io/v1", "subjectaccessreviews")
TOKEN_REVIEWS = Resource("authentication.k8s.io/v1", "tokenreviews")
