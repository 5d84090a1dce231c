"""krew's manifest of the plugin (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest)."""

import hashlib
from typing import Any

import yaml

from krew_lib.archive import LAUNCHER

NAME = "punctual"
SYSTEMS = ("linux", "darwin")
DESCRIPTION = """\
Punctual makes a Kubernetes cluster keep deadlines of divisible jobs. This plugin submits jobs and prints the promise or
the refusal, explains why a job is refused, late or not started, and shows pools and jobs live. It calls kubectl for
each request, so it has your own rights. The cluster needs Punctual's operator for answers.
"""
CAVEATS = """\
The plugin needs Python 3.11 or later with pip. Its first start installs its packages into ~/.cache/kubectl-punctual.
To complete its words and names of jobs in your shell (kubectl 1.26 or later):
  ln -sf kubectl-punctual "${KREW_ROOT:-$HOME/.krew}/bin/kubectl_complete-punctual"
"""


def manifest(archive: bytes, *, version: str, uri: str, homepage: str) -> dict[str, Any]:
    """Return the manifest of an archive that can be downloaded at ``uri``."""
    # krew asks for one platform that matches; the archive is the same for all, because Python is the user's
    platform = {
        "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": list(SYSTEMS)}]},
        "uri": uri,
        "sha256": hashlib.sha256(archive).hexdigest(),
        "files": [{"from": "*", "to": "."}],
        "bin": LAUNCHER,
    }
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": NAME},
        "spec": {
            "version": f"v{version}",
            "homepage": homepage,
            "shortDescription": "Submit, explain and watch jobs with deadlines",
            "description": DESCRIPTION,
            "caveats": CAVEATS,
            "platforms": [platform],
        },
    }


def text(made: dict[str, Any]) -> str:
    """Return the manifest as YAML; texts of several lines stay readable."""
    return yaml.dump(made, Dumper=_Dumper, sort_keys=False, width=120)


class _Dumper(yaml.SafeDumper):
    """YAML with texts of several lines as blocks."""


def _block(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _block)
