"""Secrets that must not appear in a log: tokens, keys, the environment of a job."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping

from lib.testbed import SYSTEM

from chaos_lib.ground import Ground
from punctual.kube.api.resources import Resource

SECRETS = Resource("v1", "secrets")
TELLING = 12
"""Letters: a shorter part tells nothing."""


def parts(secret: str) -> list[str]:
    """Return what would give a secret away: each line of a key, the signature of a token, else the whole."""
    lines = [line for line in secret.splitlines() if not line.startswith("-----")]
    found = lines if len(lines) > 1 else [secret.strip().rpartition(".")[2]]
    return [part for part in found if len(part) >= TELLING]


def told(text: str, secrets: Mapping[str, str]) -> list[str]:
    """Return the names of the secrets that the text gives away."""
    return [name for name, value in secrets.items() if any(part in text for part in parts(value))]


async def secrets(ground: Ground) -> dict[str, str]:
    """Return the tokens of all operators and agents that run, and the authority's keys."""
    found: dict[str, str] = {}
    find = "find . -type f -path '*projected*' -name token"
    script = f"cd /var/lib/kubelet/pods; for f in $({find}); do echo $f $(cat $f); done"
    ours = {p["metadata"]["uid"]: p for part in ("operator", "agent") for p in await ground.parts(part)}
    for node in ground.workers:
        for line in (await ground.on_node(node, script)).splitlines():
            path, _, token = line.partition(" ")
            if pod := ours.get(path.split("/")[1]):
                found[f"token of {pod['metadata']['name']}"] = token
    held = await ground.get(SECRETS.path(namespace=SYSTEM, name="punctual-ca"))
    for name, text in held["data"].items():
        if name.endswith(".key"):
            found[f"{name} of the authority"] = b64decode(text).decode()
    return found
