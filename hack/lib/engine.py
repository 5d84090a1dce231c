"""The Docker engine of the nodes: a running one, else one of the project under its own folder.

The project's engine listens on its own socket (`DOCKER_HOST`) and reads no configuration of the machine. It is stopped
with its last cluster. Its image store stays, so that the next one starts with the node image.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from lib import debian, kernel, process, traces
from lib.home import HOME, LOG, RUN, MissingError
from lib.process import CommandError, Daemon

HOST = f"unix://{RUN / 'docker.sock'}"
STORE = HOME / "docker"
NETWORK = "punctual"
_POOL = ipaddress.ip_network("172.28.0.0/14")
_WRAPPER = RUN / "runc-without-resource"
_RESOURCE = 24  # CAP_SYS_RESOURCE, linux/capability.h


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answers. `own`: we started it and we stop it."""

    own: bool

    @property
    def env(self) -> dict[str, str]:
        """What docker and kind need in their environment to find it."""
        return {"DOCKER_HOST": HOST} if self.own else {}

    @property
    def restricted(self) -> bool:
        """Whether its containers go without CAP_SYS_RESOURCE."""
        return self.own and not _has_resource("self")

    def docker(self, *words: str | Path, stdin: str | None = None, timeout: float | None = None) -> str:
        """Run a docker command and return what it printed."""
        return process.run(["docker", *words], env=self.env, stdin=stdin, timeout=timeout)

    def has_image(self, tag: str) -> bool:
        """Whether an image of that name is in the store."""
        return process.succeeds(["docker", "image", "inspect", tag], env=self.env)

    def containers(self, label: str) -> list[str]:
        """Names of the containers with that label, running or not."""
        return self.docker("ps", "--all", "--filter", f"label={label}", "--format", "{{.Names}}").split()

    def ensure_network(self) -> None:
        """Make the network of the nodes, with a bridge named as ours."""
        if process.succeeds(["docker", "network", "inspect", NETWORK], env=self.env):
            return
        options = {"bridge.name": f"{traces.BRIDGES}1", "driver.mtu": str(_mtu())}
        flags = [f"--opt=com.docker.network.{key}={value}" for key, value in options.items()]
        self.docker("network", "create", "--driver=bridge", *flags, NETWORK)

    def remove_network(self) -> None:
        """Remove that network unless something is still connected."""
        with contextlib.suppress(CommandError):
            self.docker("network", "rm", NETWORK)


_DAEMON = Daemon(RUN / "dockerd.json", LOG / "dockerd.log")


def find() -> Engine | None:
    """Give an engine that answers and can run nodes; ours before others."""
    if not shutil.which("docker"):
        return None
    if _DAEMON.pid and _answers(HOST):
        return Engine(own=True)
    if os.environ.get("DOCKER_HOST") != HOST and _answers(None) and _may_be_privileged():
        return Engine(own=False)
    return None


def ensure() -> Engine:
    """Give an engine that answers, starting ours where there is none."""
    if engine := find():
        return engine
    if os.geteuid() != 0:
        raise MissingError(
            "No Docker engine answers and only root can start one: run this as root, install Docker, "
            "or use an existing cluster with PUNCTUAL_CLUSTER=kubeconfig."
        )
    needed = {"docker": "docker.io", "dockerd": "docker.io", "ip": "iproute2", "iptables": "iptables"}
    debian.need_commands(needed)
    if engine := find():  # the package may have started one
        return engine
    return _start()


def stop() -> None:
    """Stop our engine and remove every trace of it but its store."""
    if not _DAEMON.record.exists() and not traces.found():
        return
    if _DAEMON.pid is None and any((STORE / "containers").glob("*")):
        _start()  # killed: only an engine can take its containers' layers out of the store
    if _DAEMON.pid and _answers(HOST):
        _remove_containers(Engine(own=True))
    _DAEMON.stop(within=30)
    traces.remove()


def _start() -> Engine:
    traces.remove()
    kernel.raise_to(kernel.ENGINE)
    bridge = f"{traces.BRIDGES}0"
    process.run(["ip", "link", "add", bridge, "type", "bridge"])
    process.run(["ip", "address", "add", _free_address(), "dev", bridge])
    process.run(["ip", "link", "set", bridge, "up"])
    config: dict[str, object] = {
        "hosts": [HOST],
        "data-root": str(STORE),
        "exec-root": str(RUN / "docker"),
        "pidfile": str(RUN / "docker.pid"),
        "bridge": bridge,
        "mtu": _mtu(),
        "cgroup-parent": f"/{traces.CGROUP}",
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "default-address-pools": [{"base": str(_POOL), "size": 24}],
        "log-level": "warn",
        "max-concurrent-uploads": 2,
    }
    engine = Engine(own=True)
    if engine.restricted:
        _write_wrapper()
        config |= {"runtimes": {"punctual": {"path": str(_WRAPPER)}}, "default-runtime": "punctual"}
    (RUN / "daemon.json").write_text(json.dumps(config, indent=1))
    _DAEMON.log.unlink(missing_ok=True)
    _DAEMON.start(["dockerd", "--config-file", RUN / "daemon.json"], env={traces.MARK: traces.TAG})
    if not process.eventually(lambda: _DAEMON.pid is None or _answers(HOST), within=60) or not _DAEMON.pid:
        _DAEMON.stop()
        traces.remove()
        raise CommandError(f"dockerd does not start; the end of {_DAEMON.log}:\n{_DAEMON.tail()}")
    _remove_containers(engine)
    engine.remove_network()
    return engine


def _remove_containers(engine: Engine) -> None:
    if names := engine.docker("ps", "--all", "--quiet").split():
        engine.docker("rm", "--force", "--volumes", *names)


def _answers(host: str | None) -> bool:
    env = {"DOCKER_HOST": host} if host else None
    return process.succeeds(["docker", "version", "--format", "{{.Server.Version}}"], env=env, timeout=10)


def _may_be_privileged() -> bool:
    """Say whether an engine that is not ours can start privileged containers, as far as can be seen from here."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (entry / "comm").read_text().strip() == "dockerd":
                return _has_resource(entry.name)
    return True  # it runs elsewhere, where we cannot look


def _has_resource(pid: str) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            return bool(int(line.split()[1], 16) >> _RESOURCE & 1)
    return True


def _write_wrapper() -> None:
    source = (Path(__file__).parent / "runc_without_resource.py").read_text()
    _WRAPPER.write_text(f"#!{Path(sys.executable).resolve()} -SE\n{source}")
    _WRAPPER.chmod(0o755)


def _mtu() -> int:
    """Give the MTU of the way out: packets of a larger network inside would get lost on it."""
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        interface, destination, *_ = line.split()
        if destination == "00000000":
            return int(Path(f"/sys/class/net/{interface}/mtu").read_text())
    return 1500


def _free_address() -> str:
    """Give the first address of a /24 that no route of this machine touches."""
    routes = [
        ipaddress.ip_network(f"{route['dst']}")
        for route in json.loads(process.run(["ip", "-json", "-4", "route"]) or "[]")
        if route["dst"] != "default"
    ]
    for subnet in _POOL.subnets(new_prefix=24):
        if not any(subnet.overlaps(route) for route in routes):
            return f"{next(subnet.hosts())}/24"
    raise MissingError(
        f"Every part of {_POOL} is routed on this machine, so no network is left for the nodes: use an existing "
        "cluster with PUNCTUAL_CLUSTER=kubeconfig."
    )
