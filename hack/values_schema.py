#!/usr/bin/env python3
"""The chart's values as a model: `hack/values_schema.py` writes charts/punctual/values.schema.json from it.

The defaults are defined here and, with comments, in values.yaml; a test compares them. Helm refuses unknown values
before it installs anything, so a misspelt value is an error. The API server checks Kubernetes' own types (tolerations,
peers of a policy).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

CHART = Path(__file__).resolve().parent.parent / "charts" / "punctual"

Name = Annotated[str, StringConstraints(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=40)]
Namespace = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
Folder = Annotated[str, StringConstraints(pattern=r"^/")]
Digest = Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64})?$")]
Duration = Annotated[str, StringConstraints(pattern=r"^([0-9]+(ms|s|m|h))+$")]
Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9.]+[A-Za-z]*$")] | float
Address = Annotated[str, StringConstraints(pattern=r"^(https?://[^/?#@\s]+(/[^?#\s]*)?)?$")]
Account = Annotated[str, StringConstraints(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9][-a-z0-9.]*$")]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
Labels = dict[str, str]
Objects = list[dict[str, Any]]


class _Values(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Image(_Values):
    """The image of both."""

    repository: Annotated[str, Field(min_length=1)] = "punctual"
    tag: str = ""
    digest: Digest = ""
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"


class Secret(_Values):
    """A reference to a Secret."""

    name: str


class Crds(_Values):
    """Our kinds."""

    enabled: bool = True


class Resources(_Values):
    """As a container has them."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class Operator(_Values):
    """The Deployment."""

    replicas: Annotated[int, Field(ge=1, le=5)] = 2
    log_level: LogLevel = "INFO"
    resources: Resources = Resources(requests={"cpu": "100m", "memory": "128Mi"}, limits={"memory": "512Mi"})
    node_selector: Labels = {}
    tolerations: Objects = []
    priority_class_name: str = ""
    claim_namespace: Namespace = "kube-system"


class Placeholder(_Values):
    """Pods that keep room."""

    image: str = ""
    priority: Annotated[int, Field(ge=-(10**9), lt=10**9)] = 0


class Agent(_Values):
    """The DaemonSet."""

    log_level: LogLevel = "INFO"
    node_selector: Labels = {"kubernetes.io/os": "linux"}
    tolerations: Objects = []
    priority_class_name: str = "system-node-critical"
    resources: Resources = Resources(requests={"cpu": "10m", "memory": "64Mi"}, limits={"memory": "128Mi"})
    watchdog_resources: Resources = Resources(requests={"cpu": "5m", "memory": "24Mi"}, limits={"memory": "64Mi"})
    cgroup_root: Folder = "/sys/fs/cgroup"
    pods_root: Folder = "/var/lib/kubelet/pods"
    state_root: Folder = "/run/punctual"
    se_linux_options: Labels = {}


class NetworkPolicy(_Values):
    """Which pods may talk to which."""

    enabled: bool = True
    metrics_from: Objects = []
    page_from: Objects = []


class Requirement(_Values):
    """Of a label selector."""

    key: Annotated[str, Field(min_length=1)]
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] = []


class Selector(_Values):
    """Of namespaces, by their labels."""

    match_labels: Labels = {}
    match_expressions: list[Requirement] = []


NAMED = "kubernetes.io/metadata.name"
SYSTEM = Requirement(key=NAMED, operator="NotIn", values=["kube-system", "kube-public", "kube-node-lease"])


class Policy(_Values):
    """What the API server lets the operator write."""

    enabled: bool = True
    namespace_selector: Selector = Selector(match_expressions=[SYSTEM])
    allow: list[Literal["Privileged", "Capabilities", "HostNamespaces", "HostPath", "SystemPriority"]] = []
    service_accounts: list[Account] = []


class Page(_Values):
    """The web page."""

    enabled: bool = False


class Prometheus(_Values):
    """The one that counts iterations."""

    url: Address = ""


class Dashboards(_Values):
    """For Grafana."""

    enabled: bool = True
    labels: Labels = {"grafana_dashboard": "1"}


class Monitoring(_Values):
    """For the Prometheus operator."""

    monitors: Literal["Auto", "Always", "Never"] = "Auto"
    labels: Labels = {}
    interval: Duration = "30s"
    runbooks: Annotated[str, Field(min_length=1)] = "docs/runbooks"
    dashboards: Dashboards = Dashboards()


class Values(_Values):
    """All of them."""

    fullname_override: Name = ""
    image: Image = Image()
    image_pull_secrets: list[Secret] = []
    crds: Crds = Crds()
    operator: Operator = Operator()
    placeholder: Placeholder = Placeholder()
    agent: Agent = Agent()
    network_policy: NetworkPolicy = NetworkPolicy()
    policy: Policy = Policy()
    page: Page = Page()
    prometheus: Prometheus = Prometheus()
    monitoring: Monitoring = Monitoring()
    global_: Annotated[dict[str, Any], Field(alias="global")] = {}


def schema() -> str:
    """Return the schema as the chart holds it."""
    made = Values.model_json_schema(by_alias=True)
    made.pop("title")
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **_plain(made)}, indent=1) + "\n"


def _plain(node: Any, *, names: bool = False) -> Any:
    """Drop titles and defaults: values.yaml holds them. ``names``: the keys of this map are names of fields."""
    if isinstance(node, dict):
        kept = {k: v for k, v in node.items() if names or k not in ("title", "default", "description")}
        return {k: _plain(v, names=k in ("properties", "$defs") and not names) for k, v in kept.items()}
    return node


if __name__ == "__main__":
    (CHART / "values.schema.json").write_text(schema())
