"""The image of a node: kind's if a registry answers, else one built here from published sources.

The built one is in the engine's store under a digest of its sources. The base image of the project's Dockerfile is
obtained in the same two ways.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lib import debian, node_root, process, programs
from lib.engine import Engine
from lib.home import HOME, SOURCES, MissingError, digest
from lib.steps import Steps, say

PULLED = "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"
BASE_PULLED = "python:3.11-slim-bookworm"
BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv")
_PATIENCE_S = 20.0  # until a registry has said something
_BOOTSTRAP_S = 75.0


@dataclass(frozen=True, slots=True)
class NodeImage:
    """An image in the engine's store. `own`: built here, so it brings no CNI of kind's."""

    tag: str
    own: bool


def own_tag() -> str:
    """Name our image by what it is made of."""
    parts = digest(SOURCES, Path(node_root.__file__), programs.KUBERNETES, programs.COREDNS)
    return f"punctual-node:{programs.KUBERNETES}-{parts}"


def ensure(engine: Engine) -> NodeImage:
    """Give the node image, pulling or building it first if it is not in the store."""
    tag = own_tag()
    if engine.has_image(tag):
        return NodeImage(tag, own=True)
    # kind's own lowers oom scores: without the capability for that no pod starts on it
    if not engine.restricted and (engine.has_image(PULLED) or _pull(engine, PULLED)):
        return NodeImage(PULLED, own=False)
    why = "root lacks CAP_SYS_RESOURCE here" if engine.restricted else "no registry has it for us"
    say(f"Building the node image from published Go modules and Debian packages, once: {why}.")
    try:
        _build(engine, tag)
    except process.CommandError as error:
        raise MissingError(
            "The node image can be neither pulled nor built here, which needs a registry, or a Go module proxy and a "
            f"Debian mirror, in reach: use an existing cluster with PUNCTUAL_CLUSTER=kubeconfig.\n{error}"
        ) from error
    return NodeImage(tag, own=True)


def ensure_base(engine: Engine) -> str:
    """Give an image with Debian and Python to base our own on, pulling or building it first."""
    tag = f"punctual-base:{debian.RELEASE}-{digest(','.join(BASE_PACKAGES))}"
    if engine.has_image(tag):
        return tag
    if engine.has_image(BASE_PULLED) or _pull(engine, BASE_PULLED):
        return BASE_PULLED
    steps = Steps("base image", {"Debian with Python": 50, "into the store": 5})
    with _scratch() as scratch:
        root = scratch / "base"
        building = debian.bootstrap(root, BASE_PACKAGES)
        with steps.step("Debian with Python"), _killed_if_we_fail(building):
            steps.wait(building, progress=debian.progress(root, 570))
            debian.finish(building, root)
        with steps.step("into the store"):
            _import(engine, root, tag, ['CMD ["python3"]'])
    return tag


def _pull(engine: Engine, image: str) -> bool:
    """Pull, giving up on a registry that says nothing for some seconds."""
    say(f"Pulling {image.partition('@')[0]}")
    with tempfile.TemporaryFile() as said:
        pulling = subprocess.Popen(
            ["docker", "pull", image],
            env={**os.environ, **engine.env},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.DEVNULL,
        )
        with _killed_if_we_fail(pulling):
            started = time.monotonic()
            while pulling.poll() is None:
                said.seek(0)
                if time.monotonic() - started > _PATIENCE_S and b"Pull" not in said.read():
                    pulling.kill()
                time.sleep(0.1)
    return pulling.returncode == 0


def _build(engine: Engine, tag: str) -> None:
    wanted = [one for one in node_root.PROGRAMS if not one.path.exists()]
    plan = {one.step: one.seconds for one in wanted}
    # Debian's file system is made beside them; only what is left of it then shows as a step
    plan["Debian for the nodes"] = max(_BOOTSTRAP_S - 0.5 * sum(plan.values()), 5)
    plan |= {"files of the node": 8, "into the store": 15}
    steps = Steps("node image", plan)
    with _scratch() as scratch:
        root = scratch / "node"
        building = debian.bootstrap(root, node_root.PACKAGES)
        with _killed_if_we_fail(building):
            for one in wanted:
                one.build(steps)
            with steps.step("Debian for the nodes"):
                steps.wait(building, progress=debian.progress(root, 720))
                debian.finish(building, root)
        with steps.step("files of the node"):
            node_root.furnish(root)
        with steps.step("into the store"):
            changes = ['ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]', "ENV container=docker"]
            _import(engine, root, tag, changes)
    _forget_older(engine, tag)


def _forget_older(engine: Engine, tag: str) -> None:
    """Remove what we built before, but for what a cluster runs on."""
    for other in engine.docker("images", "punctual-node", "--format", "{{.Repository}}:{{.Tag}}").split():
        if other != tag:
            process.succeeds(["docker", "image", "rm", other], env=engine.env)


def _import(engine: Engine, root: Path, tag: str, changes: list[str]) -> None:
    """Bring a file system into the engine's store as an image of one layer."""
    flags = [word for change in changes for word in ("--change", change)]
    tar = subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE)
    with _killed_if_we_fail(tar):
        assert tar.stdout
        loading = subprocess.run(
            ["docker", "import", *flags, "-", tag],
            env={**os.environ, **engine.env},
            stdin=tar.stdout,
            capture_output=True,
            text=True,
            check=False,
        )
        tar.stdout.close()  # else tar would wait for ever for a reader that gave up
        tar.wait()
    if tar.returncode or loading.returncode:
        raise process.CommandError(f"docker import of {tag} failed: {loading.stderr.strip()}")


@contextmanager
def _scratch() -> Iterator[Path]:
    """Give a folder on the same disk as everything else, gone afterwards."""
    folder = HOME / "tmp"
    shutil.rmtree(folder, ignore_errors=True)  # of one that was killed
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _killed_if_we_fail(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let no child outlive the work that it was started for."""
    try:
        yield
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
