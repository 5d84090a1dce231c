"""Where the API server's address, certificates and token come from. Kubeconfigs: tests/api/test_client.py."""

import sys

import pytest

from punctual.errors import ClusterError
from punctual.kube.cluster import access
from punctual.kube.cluster.access import load_access

PROXIES = "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"


@pytest.fixture
def pod(tmp_path, monkeypatch):
    """The folder of a service account, with what Kubernetes puts there and into the environment."""
    (tmp_path / "token").write_text("a-token\n")
    (tmp_path / "ca.crt").write_text("certificates")
    monkeypatch.setattr(access, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    return tmp_path


def test_in_a_pod_the_service_account_is_used(pod):
    found = load_access(None)
    assert found.server == "https://10.96.0.1:443"
    assert (found.ca, found.verified, found.proxy) == (str(pod / "ca.crt"), True, None)
    assert found.credentials.authorization() == "Bearer a-token"


def test_a_new_token_is_shown(pod):
    found = load_access(None)
    (pod / "token").write_text("the-next")
    assert found.credentials.authorization() == "Bearer the-next"


def test_an_address_of_ipv6_stands_in_brackets(pod, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert load_access(None).server == "https://[fd00::1]:443"


@pytest.mark.parametrize(("without", "proxy"), [("", "http://proxy:3128"), ("example.com,10.96.0.1", None)])
def test_a_proxy_of_the_environment_is_used_except_for_hosts_without_one(pod, monkeypatch, without, proxy):
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", without)
    assert load_access(None).proxy == proxy


@pytest.mark.parametrize("file", ["token", "ca.crt"])
def test_a_file_that_is_not_there_is_named(pod, file):
    (pod / file).unlink()
    with pytest.raises(ClusterError, match=rf"no configuration for the API server: .*{file}"):
        load_access(None)


def test_an_empty_token_is_named(pod):
    (pod / "token").write_text("")
    with pytest.raises(ClusterError, match="token is empty"):
        load_access(None)


def test_without_the_library_a_kubeconfig_is_refused_and_the_package_named(pod):
    with pytest.raises(ClusterError, match=r"punctual-operator\[kubeconfig\]"):
        load_access("config")
