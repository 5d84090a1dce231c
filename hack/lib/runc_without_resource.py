"""The runtime of our Docker engine where root lacks CAP_SYS_RESOURCE: runc, asked for everything else.

A privileged container wants all capabilities, and runc cannot give what it has not got. This takes the one
out of the bundle's configuration (create, run) or of the process description (exec), then becomes runc.
It is copied beside the engine's files, so it imports nothing of ours.
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
