"""What the documentation tells a GitOps tool to leave alone of an ordinary Job, and how Argo CD does that."""

import copy
import re
from pathlib import Path

import yaml

DOCS = Path(__file__).parents[2] / "docs" / "jobs.md"


def left_alone():
    """Return the fields that the stanza for Argo CD names, each as its parts."""
    (stanza,) = re.findall(r"```yaml\n(spec:\n  ignoreDifferences:.*?)```", DOCS.read_text(), re.DOTALL)
    (rule,) = yaml.safe_load(stanza)["spec"]["ignoreDifferences"]
    return [pointer.strip("/").split("/") for pointer in rule["jsonPointers"]]


def respecting(manifest, there):
    """Return a manifest with these fields as they are in the cluster."""
    made = copy.deepcopy(manifest)
    for *parents, name in left_alone():
        into, source = made, there
        for parent in parents:
            into, source = into.setdefault(parent, {}), source.get(parent) or {}
        into.pop(name, None)
        if name in source:
            into[name] = source[name]
    return made
