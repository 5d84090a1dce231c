"""Installs Debian packages on this machine and Debian file systems in a folder. It reports what it installs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from lib import process
from lib.home import LOG, MissingError
from lib.steps import say

RELEASE = "bookworm"


def need_commands(packages: dict[str, str]) -> None:
    """Install the packages of those commands that are not there: `{"debootstrap": "debootstrap"}`."""
    missing = sorted({package for command, package in packages.items() if not shutil.which(command)})
    if missing:
        install(missing)


def install(missing: Sequence[str]) -> None:
    """Install these packages."""
    if not shutil.which("apt-get"):
        raise MissingError(
            f"This machine lacks {', '.join(missing)} and has no apt-get to install it with: install it, "
            "or use an existing cluster with PUNCTUAL_CLUSTER=kubeconfig."
        )
    say(f"Installing Debian packages: {', '.join(missing)}")
    quietly = {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    try:
        process.run(["apt-get", "update"], env=quietly, timeout=300)
        process.run(install, env=quietly, timeout=600)
    except process.CommandError as error:
        raise MissingError(
            f"The Debian packages {', '.join(missing)} cannot be had ({error}): install them, give this machine "
            "a network, or use an existing cluster with PUNCTUAL_CLUSTER=kubeconfig."
        ) from error


def unpack(package: str, folder: Path) -> None:
    """Fetch a package and unpack its files into `folder`, without its dependencies and its scripts."""
    if not shutil.which("apt-get"):
        raise MissingError(f"The Debian package {package} cannot be had: this machine has no apt-get.")
    folder.mkdir(parents=True)
    try:
        process.run(["apt-get", "update"], timeout=300)
        process.run(["apt-get", "download", "-o", "APT::Sandbox::User=root", package], cwd=folder, timeout=600)
        (archive,) = folder.glob("*.deb")
        process.run(["dpkg-deb", "--extract", archive, folder])
    except process.CommandError as error:
        raise MissingError(f"The Debian package {package} cannot be had ({error}).") from error
    archive.unlink()


def bootstrap(folder: Path, packages: Sequence[str]) -> subprocess.Popen[bytes]:
    """Begin to fill `folder` with a small Debian that has `packages`; it goes on beside other work."""
    need_commands({"debootstrap": "debootstrap"})
    shutil.rmtree(folder, ignore_errors=True)
    options = folder / "etc/dpkg/dpkg.cfg.d"
    options.mkdir(parents=True)
    (options / "unsafe-io").write_text("force-unsafe-io\n")  # it need not survive a power cut; twice as quick
    LOG.mkdir(parents=True, exist_ok=True)
    with log_of(folder).open("wb") as log:
        return subprocess.Popen(
            ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", RELEASE, folder, *_mirror()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def finish(building: subprocess.Popen[bytes], folder: Path) -> None:
    """Look how a file system's making ended and take out what only its making needed."""
    if building.returncode:
        tail = "\n".join(log_of(folder).read_text(errors="replace").splitlines()[-8:])
        raise process.CommandError(f"debootstrap ended with {building.returncode}:\n{tail}")
    for waste in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(folder / waste, ignore_errors=True)
        (folder / waste).mkdir()


def progress(folder: Path, lines: int) -> Callable[[], float | None]:
    """Give what tells how far the making of a file system is: its log has about so many lines in the end."""

    def fraction() -> float | None:
        try:
            return min(log_of(folder).read_bytes().count(b"\n") / lines, 1.0)
        except OSError:
            return None

    return fraction


def log_of(folder: Path) -> Path:
    """Say where the making of a file system is logged."""
    return LOG / f"debootstrap-{folder.name}.log"


def _mirror() -> list[str]:
    """Give the mirror that this machine's apt uses for the release; none: debootstrap knows Debian's own."""
    try:
        targets = process.run(
            ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"]
        )
    except process.CommandError:
        return []
    for line in targets.splitlines():
        uri, _, codename = line.partition(" ")
        if codename == RELEASE:
            return [uri]
    return []
