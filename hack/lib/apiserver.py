"""A bare API server: etcd and kube-apiserver as plain processes, for quick tests of schemas and writers.

There is no kubelet, scheduler or controller: pods stay Pending, namespaces Terminating, and owners' children stay. The
ServiceAccount admission plugin is off (no controller creates the `default` account that it requires). TokenRequest and
TokenReview work. Access is by bearer token, so that a proxy may end TLS.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import urllib.request
from pathlib import Path

from lib import process, programs
from lib.home import HOME, LOG
from lib.steps import Steps

TOKEN = "admin"  # it listens on the loopback only
ISSUER = "https://kubernetes.default.svc"


class ApiServer:
    """One server by name, in a folder of its own and on ports that were free."""

    def __init__(self, name: str) -> None:
        self.folder = HOME / "apiserver" / name
        self.kubeconfig = self.folder / "kubeconfig"
        self.audit_log = self.folder / "audit.log"
        self._data = self.folder / "etcd"
        self._ports = self.folder / "ports.json"
        self._commands = self.folder / "commands.json"
        log = LOG / f"apiserver-{name}"
        self._etcd = process.Daemon(self.folder / "etcd.json", log.with_suffix(".etcd.log"))
        self._server = process.Daemon(self.folder / "kube-apiserver.json", log.with_suffix(".log"))

    @property
    def running(self) -> bool:
        """Whether both processes live."""
        return self._etcd.pid is not None and self._server.pid is not None

    def up(self, *, audit: bool) -> None:
        """Start it, or leave it as it is when it runs and audits as asked."""
        if self.running and audit == self.audit_log.exists():
            return
        self.down()
        binary = programs.kubernetes
        binary.build(Steps("programs", {binary.step: binary.seconds}))
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o700)  # keys lie in it
        try:
            self._start(binary.folder, audit=audit)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Stop both and remove the folder."""
        self._server.stop()
        self._etcd.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def save(self, snapshot: Path) -> None:
        """Save a snapshot of the running etcd."""
        client, _, _ = json.loads(self._ports.read_text())
        process.run([self._etcdutl(), "save", f"http://127.0.0.1:{client}", snapshot])

    def restore(self, snapshot: Path, *, bump: int = 0) -> None:
        """Stop both, let etcd have the state of a snapshot, and start both again, on the same ports.

        With ``bump``, versions go on so far above those of the snapshot, and all watches have to begin anew.
        """
        self._server.stop()
        self._etcd.stop()
        _, peer, _ = json.loads(self._ports.read_text())
        shutil.rmtree(self._data)
        url = f"http://127.0.0.1:{peer}"
        argv: list[str | Path] = [
            self._etcdutl(),
            *("snapshot", "restore", snapshot),
            f"--data-dir={self._data}",
            f"--initial-cluster=default={url}",
            f"--initial-advertise-peer-urls={url}",
        ]
        process.run([*argv, *([f"--bump-revision={bump}", "--mark-compacted"] if bump else [])])
        self._run()

    def _etcdutl(self) -> Path:
        program = programs.etcdutl
        program.build(Steps("programs", {program.step: program.seconds}))
        return program.path

    def _start(self, programs_folder: Path, *, audit: bool) -> None:
        client, peer, port = _free_ports(3)
        pki = self.folder / "pki"
        self._ports.write_text(json.dumps([client, peer, port]))
        self._certificates(programs_folder, pki)
        (self.folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
        etcd: list[str | Path] = [
            programs_folder / "etcd",
            f"--data-dir={self._data}",
            f"--listen-client-urls=http://127.0.0.1:{client}",
            f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]
        server: list[str | Path] = [
            programs_folder / "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{client}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=Node,RBAC",
            "--disable-admission-plugins=ServiceAccount",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            "--allow-privileged=true",
            "--profiling=false",
        ]
        if audit:
            server += self._audit_flags()
        self._write_kubeconfig(port, pki / "ca.crt")
        self._commands.write_text(json.dumps([[str(word) for word in argv] for argv in (etcd, server)]))
        self._run()

    def _run(self) -> None:
        """Start both, and wait until the server answers."""
        etcd, server = json.loads(self._commands.read_text())
        _, _, port = json.loads(self._ports.read_text())
        self._etcd.start(etcd)
        self._server.start(server)
        pki = self.folder / "pki"
        if not process.eventually(lambda: self._ready(port, pki / "ca.crt"), within=60, every=0.05):
            raise process.CommandError(f"kube-apiserver does not get ready:\n{self._server.tail()}")

    def _certificates(self, programs_folder: Path, pki: Path) -> None:
        """Own CA, serving certificate for the loopback, service-account keys: kubeadm knows how."""
        config = self.folder / "kubeadm.json"
        meta = {"apiVersion": "kubeadm.k8s.io/v1beta4"}
        cluster = {
            **meta,
            "kind": "ClusterConfiguration",
            "kubernetesVersion": programs.KUBERNETES,
            "certificatesDir": str(pki),
            "encryptionAlgorithm": "ECDSA-P256",
            "apiServer": {"certSANs": ["127.0.0.1", "localhost"]},
        }
        # an address of its own choosing is the default route's, and there may be none
        here = {**meta, "kind": "InitConfiguration", "localAPIEndpoint": {"advertiseAddress": "192.0.2.1"}}
        config.write_text(f"{json.dumps(cluster)}\n---\n{json.dumps(here)}\n")
        for phase in ("ca", "apiserver", "sa"):
            # sa alone reads no configuration that would tell it the folder
            where = [f"--cert-dir={pki}"] if phase == "sa" else [f"--config={config}"]
            process.run([programs_folder / "kubeadm", "init", "phase", "certs", phase, *where])

    def _audit_flags(self) -> list[str]:
        policy = self.folder / "audit-policy.json"
        policy.write_text(
            json.dumps(
                {
                    "apiVersion": "audit.k8s.io/v1",
                    "kind": "Policy",
                    "omitStages": ["RequestReceived"],
                    "rules": [{"level": "Metadata"}],
                }
            )
        )
        self.audit_log.touch()
        return [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"]

    def _write_kubeconfig(self, port: int, authority: Path) -> None:
        cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "apiserver", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "apiserver", "context": {"cluster": "apiserver", "user": "admin"}}],
            "current-context": "apiserver",
        }
        self.kubeconfig.write_text(json.dumps(config, indent=1))
        self.kubeconfig.chmod(0o600)

    def _ready(self, port: int, authority: Path) -> bool:
        if not self.running:
            raise process.CommandError(
                f"etcd or kube-apiserver ended at once:\n{self._etcd.tail(5)}\n{self._server.tail()}"
            )
        request = urllib.request.Request(
            f"https://127.0.0.1:{port}/readyz", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        trust = ssl.create_default_context(cafile=str(authority))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        )
        with contextlib.suppress(OSError), opener.open(request, timeout=5) as answer:
            return bool(answer.status == 200)
        return False


def _free_ports(count: int) -> list[int]:
    """Free ports of the loopback."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
