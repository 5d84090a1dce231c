"""The file system of a node: Debian's containerd and systemd, and Kubernetes from its own sources.

It contains the images of Kubernetes' own pods as archives of one layer, which the node imports at its start. A change
here causes a new node image on every machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from lib import process, programs
from lib.home import SOURCES

PROGRAMS = (programs.kubernetes, programs.kube_proxy, programs.coredns, programs.pause)
ETCD, PAUSE = "3.6.6-0", "3.10.1"
PACKAGES = (
    "ca-certificates",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "curl",
    "dbus",
    "ethtool",
    "iproute2",
    "iptables",
    "jq",
    "kmod",
    "mount",
    "netbase",
    "nftables",
    "procps",
    "runc",
    "socat",
    "systemd",
    "systemd-sysv",
    "util-linux",
)


def furnish(root: Path) -> None:
    """Put Kubernetes, its images and our files into Debian's file system."""
    local = root / "usr/local/bin"
    shutil.copytree(SOURCES / "files", root, dirs_exist_ok=True)
    containerd = root / "etc/containerd/config.toml"
    containerd.write_text(containerd.read_text().replace("@PAUSE@", PAUSE))
    shutil.copy2(programs.kubernetes.path, local)
    for part in ("kubelet", "kubeadm", "kubectl"):
        (local / part).symlink_to("kubernetes")
    (root / "opt/cni").mkdir(parents=True, exist_ok=True)
    (root / "opt/cni/bin").symlink_to("/usr/lib/cni")
    (root / "kind/images").mkdir(parents=True)
    (root / "kind/version").write_text(programs.KUBERNETES)
    _write_images(root)
    for unit in ("kubelet", "node-images", "containerd"):
        process.run(["chroot", root, "systemctl", "enable", f"{unit}.service"])
    # a node is a container: nothing to mount, to check or to log in to
    idle = (
        "getty.target",
        "systemd-logind.service",
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "dpkg-db-backup.timer",
    )
    process.run(["chroot", root, "systemctl", "mask", *idle, "e2scrub_all.timer", "fstrim.timer"])
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/machine-id").unlink(missing_ok=True)


def _write_images(root: Path) -> None:
    """Write the images of Kubernetes' own pods: what every node needs, and what a control plane needs besides."""
    version, folder = programs.KUBERNETES, root / "kind/images"
    with _layer(folder) as archive:
        archive.add(programs.kube_proxy.path, "usr/local/bin/kube-proxy")
        archive.add(programs.pause.path, "pause")
        # kube-proxy calls nft, and without names of protocols takes each Service that it lists for another's: it
        # deletes all of them whenever it writes its rules anew, which it does once an hour
        for name in ("/etc/protocols", "/usr/sbin/nft", *_libraries(root, "/usr/sbin/nft")):
            archive.add((root / name.lstrip("/")).resolve(), name.lstrip("/"))
    _write_archive(folder / "node.tar", {"": [f"kube-proxy:{version}"], "/pause": [f"pause:{PAUSE}"]})
    with _layer(folder) as archive:
        archive.add(programs.kubernetes.path, "usr/local/bin/kubernetes")
        for part in programs.PARTS:
            link = tarfile.TarInfo(f"usr/local/bin/{part}")
            link.type, link.linkname = tarfile.SYMTYPE, "kubernetes"
            archive.addfile(link)
        archive.add(programs.coredns.path, "coredns")
    control = [f"kube-{part}:{version}" for part in ("apiserver", "controller-manager", "scheduler")]
    images = {"": [*control, f"etcd:{ETCD}"], "/coredns": [f"coredns/coredns:{programs.COREDNS}"]}
    _write_archive(folder / "control-plane.tar", images)
    (folder / "layer.tar").unlink()


def _layer(folder: Path) -> tarfile.TarFile:
    return tarfile.open(folder / "layer.tar", "w")


def _write_archive(path: Path, images: Mapping[str, Sequence[str]]) -> None:
    """Write images in the format of `docker save`: entry point to names, all on the one layer beside `path`."""
    layer = path.with_name("layer.tar")
    with layer.open("rb") as file:
        layer_digest = hashlib.file_digest(file, "sha256").hexdigest()
    manifest = []
    with tarfile.open(path, "w") as archive:
        archive.add(layer, "layer.tar")
        for entry_point, names in images.items():
            config = {
                "architecture": programs.architecture(),
                "os": "linux",
                "config": {
                    "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                    "Entrypoint": [entry_point] if entry_point else None,
                },
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
            }
            file_name = f"{entry_point.lstrip('/') or 'plain'}.json"
            _add_text(archive, file_name, json.dumps(config))
            tags = [f"registry.k8s.io/{name}" for name in names]
            manifest.append({"Config": file_name, "RepoTags": tags, "Layers": ["layer.tar"]})
        _add_text(archive, "manifest.json", json.dumps(manifest))


def _libraries(root: Path, program: str) -> list[str]:
    """List the shared libraries of a program in a file system, the loader with them."""
    said = process.run(["chroot", root, "ldd", program])
    return sorted(word for line in said.splitlines() for word in line.split() if word.startswith("/"))


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(text.encode())
    archive.addfile(entry, io.BytesIO(text.encode()))
