"""Fills a virtual environment from the lock file, with this checkout installed for editing. `hack/venv` calls it.

It runs on the system's Python before any package is installed: standard library only.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lib.home import LOG
from lib.process import CommandError
from lib.steps import Steps, say

ROOT = Path(__file__).resolve().parents[2]


def main(venv: Path) -> int:
    """Install everything; one sentence and 1 where that fails."""
    pip: list[str | Path] = [venv / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    steps = Steps(str(venv), {"fetching and installing the locked packages": 60, "installing this checkout": 5})
    try:
        with steps.step("fetching and installing the locked packages"):
            steps.run([*pip, "--require-hashes", "-r", "requirements/dev.lock"], log=LOG / "packages.log", cwd=ROOT)
        with steps.step("installing this checkout"):
            editable = [*pip, "--no-deps", "--no-build-isolation", "--editable", "."]
            steps.run(editable, log=LOG / "packages.log", cwd=ROOT)
    except CommandError as error:
        say(str(error))
        say(
            "hack/venv: the packages cannot be had: let this machine reach PyPI, or set PIP_INDEX_URL to an index that "
            "it can reach (PIP_FIND_LINKS to a folder of wheels)."
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
