"""How this process reaches the API server: address, certificates, token.

In a pod these are the files of its service account. Elsewhere the library ``kubernetes`` reads a kubeconfig, with its
contexts, exec plugins and OIDC. It is imported only then, and the image does not contain it: where it is installed,
kopf imports it too, which takes 13 MiB.
"""

import os
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from punctual.errors import ClusterError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder of a pod's credentials (kubernetes.io/docs/tasks/run-application/access-api-from-pod)."""


class Credentials(Protocol):
    """What proves to the API server which user this is."""

    def authorization(self) -> str | None:
        """Return the Authorization header's value: a scheme and a token. Blocks. Raises ClusterError."""


@dataclass(frozen=True, slots=True)
class Access:
    """An API server and the way to it. Files are PEM."""

    server: str
    """``https://host:port``."""
    credentials: Credentials
    ca: str | None = None
    """File of the authority that signed the server's certificate; None: those that the system trusts."""
    verified: bool = True
    """Whether the server must show a certificate for its name."""
    certificate: str | None = None
    """File of this user's own certificate."""
    key: str | None = None
    """File of that certificate's private key."""
    server_name: str | None = None
    """Name in the server's certificate, where it is not the address."""
    proxy: str | None = None
    """URL of the proxy on the way."""

    def tls(self) -> ssl.SSLContext:
        """Return a TLS context for connections to the server."""
        context = ssl.create_default_context(cafile=self.ca)
        if not self.verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key)
        return context


def load_access(kubeconfig: str | None) -> Access:
    """Return the access of the given kubeconfig, else of this pod, else of the user's kubeconfig.

    Raises ClusterError if there is none of these or it cannot be read.
    """
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return _of_pod(os.environ)
    return _of_kubeconfig(kubeconfig)


@dataclass(frozen=True, slots=True)
class _MountedToken:
    """A service account's token. The kubelet writes a new one before the old one expires."""

    file: Path

    def authorization(self) -> str:
        try:
            token = self.file.read_text().strip()
        except OSError as error:
            raise ClusterError(f"no configuration for the API server: {error}") from error
        if not token:
            raise ClusterError(f"no configuration for the API server: {self.file} is empty")
        return f"Bearer {token}"


def _of_pod(environment: Mapping[str, str]) -> Access:
    host = environment["KUBERNETES_SERVICE_HOST"]
    server = f"https://{f'[{host}]' if ':' in host else host}:{environment.get('KUBERNETES_SERVICE_PORT') or '443'}"
    ca, token = SERVICE_ACCOUNT / "ca.crt", _MountedToken(SERVICE_ACCOUNT / "token")
    token.authorization()
    if not ca.is_file():
        raise ClusterError(f"no configuration for the API server: there is no file {ca}")
    proxies = urllib.request.getproxies_environment()
    proxy = _proxy(server, proxies.get("https") or proxies.get("all"), proxies.get("no"))
    return Access(server, token, ca=str(ca), proxy=proxy)


@dataclass(frozen=True, slots=True)
class _ConfiguredUser:
    """The user of a kubeconfig's context."""

    configuration: Any  # kubernetes has no types

    def authorization(self) -> str | None:
        # runs an exec plugin again when due; the key's name before kubernetes 37 is "authorization"
        header: str | None = self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return header


def _of_kubeconfig(kubeconfig: str | None) -> Access:
    try:
        from kubernetes import config  # noqa: PLC0415  see above
        from kubernetes.client import Configuration  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ClusterError(
            "no configuration for the API server: this process runs in no pod, and to read a kubeconfig it needs "
            "the Python package kubernetes (pip install 'punctual-operator[kubeconfig]')"
        ) from error
    found = Configuration()
    try:
        config.load_kube_config(kubeconfig, client_configuration=found, persist_config=False)  # type: ignore[no-untyped-call]  # it has no types
    except (config.ConfigException, OSError) as error:
        raise ClusterError(f"no configuration for the API server: {error}") from error
    return Access(
        found.host.rstrip("/"),
        _ConfiguredUser(found),
        ca=found.ssl_ca_cert,
        verified=found.verify_ssl,
        certificate=found.cert_file,
        key=found.key_file,
        server_name=found.tls_server_name,
        proxy=_proxy(found.host, found.proxy, found.no_proxy),
    )


def _proxy(server: str, proxy: str | None, without: str | None) -> str | None:
    """Return the proxy on the way to a server, None where the server is one that is reached without it."""
    host = urlsplit(server).hostname or ""
    return None if proxy and urllib.request.proxy_bypass(host, {"no": without or ""}) else proxy or None
