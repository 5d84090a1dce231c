#!/usr/bin/env python3
"""kubectl-punctual: starts Punctual's command line from the archive that krew has installed.

Its first start installs the wheel beside it, and the packages that the wheel needs, with pip: into a folder of the
user's cache, one per version of Punctual and of Python. Versions and hashes of the packages are those of cli.lock.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

LEAST = (3, 11)


def fail(text: str) -> None:
    """End with a message."""
    sys.exit(f"kubectl punctual: {text}")


def folder(wheel: Path) -> Path:
    """Return the folder of the installed packages."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    version = wheel.name.split("-")[1]
    return Path(cache) / "kubectl-punctual" / f"{version}-{sys.implementation.cache_tag}"


def install(wheel: Path, lock: Path, target: Path) -> None:
    """Install into the target, as a whole or not at all: two first starts may run at the same time."""
    print(f"kubectl punctual: first start: installing into {target}", file=sys.stderr)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as new:
        pip = sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", f"{new}/x"
        for words in (("--require-hashes", "--only-binary=:all:", "-r", lock), ("--no-deps", "--no-index", wheel)):
            done = subprocess.run([*pip, *words], check=False)
            if done.returncode:
                fail("pip could not install it; Python's pip and a package index are needed for the first start")
        if not target.exists():
            Path(new, "x").rename(target)


def main() -> None:
    """Start the command line."""
    if sys.version_info < LEAST:
        fail(f"Python {LEAST[0]}.{LEAST[1]} or later is needed; {sys.executable} is {sys.version.split()[0]}")
    here = Path(__file__).resolve().parent
    wheel = next(here.glob("punctual_operator-*.whl"))
    target = folder(wheel)
    if not target.exists():
        if Path(sys.argv[0]).name.startswith("kubectl_complete"):
            print(":4")  # a shell that completes a word must not wait for pip
            return
        install(wheel, here / "cli.lock", target)
    sys.path.insert(0, str(target))
    from punctual.cli import main as start  # noqa: PLC0415  it is there only now

    start()


if __name__ == "__main__":
    main()
