"""The local cluster's own life: it comes, is left alone, shares the machine, and leaves nothing behind."""

import json
import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest
from live import eventually

HACK = Path(__file__).parents[2] / "hack"
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start an engine and look at its cgroups")


def hack(*words, home=None, check=True):
    env = {**os.environ, **({"PUNCTUAL_HOME": str(home)} if home else {})}
    argv = [HACK / "cluster", *words]
    return subprocess.run(argv, env=env, check=check, capture_output=True, text=True, timeout=600)


def others():
    """What there is of the cluster that tests use, ready or busy."""
    return [line.replace("not ready", "ready") for line in hack("status", check=False).stdout.splitlines()[1:]]


def inside(home, code):
    """Run Python with the tools' modules and a home of its own; what it prints is JSON."""
    env = {**os.environ, "PUNCTUAL_HOME": str(home), "PYTHONPATH": str(HACK)}
    script = f"import json\nfrom lib import cluster, engine, programs, steps, traces\n{code}"
    said = subprocess.run([sys.executable, "-c", script], env=env, check=False, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


@pytest.fixture
def short_path():
    """A folder whose sockets' names fit into the 108 characters that they may have."""
    with tempfile.TemporaryDirectory(prefix="pn-") as folder:
        yield Path(folder)


def engine_env():
    said = hack("env").stdout
    return {**os.environ, **dict(line.removeprefix("export ").split("=", 1) for line in said.splitlines()[:-1])}


def docker(*words):
    return subprocess.run(["docker", *words], env=engine_env(), check=True, capture_output=True, text=True).stdout


def cgroups_of(containers):
    """All cgroups on this machine that carry one of the containers' ids in their name."""
    folders = (folder for folder, _, _ in os.walk("/sys/fs/cgroup"))
    return [folder for folder in folders if any(identity in folder for identity in containers)]


async def test_services_are_reached_also_when_kube_proxy_has_written_its_rules_anew(cluster):
    """It does so once an hour, and where a node's zone changes."""
    node, zone = cluster.nodes[0], "topology.kubernetes.io/zone"

    def written():
        said = cluster.on_node(node, "curl --silent --show-error --max-time 10 http://127.0.0.1:10249/metrics")
        count = 'kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} '
        return next(int(line.removeprefix(count)) for line in said.splitlines() if line.startswith(count))

    service = cluster.kubectl("get", "service", "-n", "default", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
    before = written()
    cluster.kubectl("label", "node", node, f"{zone}=elsewhere")
    try:
        await eventually(lambda: written() > before)
        assert cluster.on_node(node, f"curl --silent --show-error --insecure --max-time 30 https://{service}/version")
    finally:
        cluster.kubectl("label", "node", node, f"{zone}-")


@pytest.mark.cluster
@pytest.mark.timeout(1200)
@ROOT
def test_a_second_cluster_comes_is_left_alone_and_leaves_nothing():
    name = f"t-{uuid.uuid4().hex[:6]}"
    label = f"label=io.x-k8s.kind.cluster={name}"
    others_before = others()
    try:
        kubeconfig = Path(hack("up", "--name", name, "--workers", "1", "--cpus", "0.5").stdout.strip())
        assert kubeconfig == Path(hack("kubeconfig", "--name", name).stdout.strip())
        nodes = docker("ps", "--quiet", "--no-trunc", "--filter", label).split()
        assert len(nodes) == 2
        assert cgroups_of(nodes)
        assert hack("status", "--name", name).returncode == 0

        kubectl = [hack("kubectl-path", "--name", name).stdout.strip(), f"--kubeconfig={kubeconfig}"]
        ask = [*kubectl, "get", "node", f"{name}-worker", "-o", "jsonpath={.status.allocatable.cpu}"]
        assert subprocess.check_output(ask, text=True) == "500m"
        assert docker("inspect", f"{name}-worker", "--format", "{{.HostConfig.NanoCpus}}").strip() == "500000000"

        hack("up", "--name", name, "--workers", "1", "--cpus", "0.5")
        assert docker("ps", "--quiet", "--no-trunc", "--filter", label).split() == nodes
    finally:
        hack("down", "--name", name)
    assert hack("status", "--name", name, check=False).returncode == 1
    assert not kubeconfig.parent.exists()
    assert cgroups_of(nodes) == []
    assert others() == others_before


@pytest.mark.cluster
@pytest.mark.timeout(600)
@ROOT
def test_down_leaves_nothing_after_everything_was_killed(short_path):
    home = short_path
    try:
        inside(
            home,
            """
found = engine._start()
programs.pause.build(steps.Steps("pause", {programs.pause.step: 5}))
found.ensure_network()
import subprocess
tar = subprocess.run(["tar", "-C", programs.pause.folder, "-c", "pause"], check=True, capture_output=True)
subprocess.run(["docker", "import", "--change", 'CMD ["/pause"]', "-", "pause"], input=tar.stdout, check=True,
               env={"PATH": "/usr/bin:/bin:/usr/local/bin", **found.env}, stdout=subprocess.DEVNULL)
for _ in range(2):
    found.docker("run", "--detach", "--privileged", "--volume=/var", f"--network={engine.NETWORK}", "pause")
print("null")
""",
        )
        kinds = {line.split()[0] for line in inside(home, "print(json.dumps(traces.found()))")}
        assert kinds == {"process", "mount", "interface", "cgroup"}
        inside(
            home,
            """
import os, signal
for line in traces.found():
    kind, pid = line.split()
    if kind == "process":
        try: os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError: pass
print("null")
""",
        )
    finally:
        inside(home, "cluster.engines.stop()\nprint('null')")
    assert inside(home, "print(json.dumps(traces.found()))") == []
    assert list((home / "docker/containers").iterdir()) == []
    rules = subprocess.run(["iptables-save"], check=True, capture_output=True, text=True).stdout
    assert inside(home, "print(json.dumps(traces.BRIDGES))") not in rules


@pytest.mark.parametrize(("option", "inner"), [("--bundle", "process"), ("--process", None)])
def test_runc_is_not_asked_for_the_capability_that_root_lacks(tmp_path, option, inner):
    runc = tmp_path / "runc"
    runc.write_text('#!/bin/sh\necho "$@"\n')
    runc.chmod(0o755)
    asked = {"capabilities": {"bounding": ["CAP_KILL", "CAP_SYS_RESOURCE"], "effective": ["CAP_KILL"]}, "args": ["x"]}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({inner: asked, "root": {}} if inner else asked))
    argv = [HACK / "lib/runc_without_resource.py", "create", option, tmp_path if inner else config, "id"]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    said = subprocess.run([sys.executable, *argv], env=env, check=True, capture_output=True, text=True).stdout
    assert said.split() == [str(word) for word in argv[1:]]
    left = json.loads(config.read_text())
    assert (left[inner] if inner else left) == {
        "capabilities": {"bounding": ["CAP_KILL"], "effective": ["CAP_KILL"]},
        "args": ["x"],
    }


def test_a_cluster_is_told_apart_from_what_dns_would_refuse():
    refused = hack("kubeconfig", "--name", "Not_A_Name", check=False)
    assert refused.returncode == 1
    assert "no name for a cluster" in refused.stderr
