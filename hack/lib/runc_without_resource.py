"""The runtime of the project's Docker engine for a root without CAP_SYS_RESOURCE: a wrapper of runc.

A privileged container requests all capabilities, and runc cannot grant one that it lacks. The wrapper removes this one
from the bundle's configuration (create, run) or from the process description (exec) and then executes runc. It is
copied beside the engine's files, so it imports no module of the project.
"""

import json
import os
import sys

LACKING = "CAP_SYS_RESOURCE"


def without(process: dict) -> None:  # type: ignore[type-arg]  # runc's own JSON
    """Take the capability out of every set."""
    for names in process.get("capabilities", {}).values():
        if LACKING in names:
            names.remove(LACKING)


def value(option: str) -> str | None:
    """Give what follows the option on the command line."""
    words = sys.argv[1:]
    return words[words.index(option) + 1] if option in words[:-1] else None


if bundle := value("--bundle"):
    path, inner = f"{bundle}/config.json", "process"
else:
    path, inner = value("--process") or "", ""
if path:
    with open(path) as file:  # noqa: PTH123  # pathlib would cost each docker exec 5 ms
        config = json.load(file)
    without(config[inner] if inner else config)
    with open(path, "w") as file:  # noqa: PTH123  # the same
        json.dump(config, file)
os.execvp("runc", ["runc", *sys.argv[1:]])
