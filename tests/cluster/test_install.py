"""docs/install.md: each of its commands is run, read from the page."""

import json
import re
import sys
import uuid

import pytest
from lib import testbed
from live import LABEL, POOL, ROOT, SYSTEM, eventually

from punctual.kube.kinds.pools.pools import FINALIZER

PAGE = (ROOT / "docs/install.md").read_text()
RUN = {
    "Install",
    "Upgrade",
    "Uninstall",
    "Reinstall with jobs left",
    "If the uninstallation was cut short",
    "Remove everything",
}
"""The sections that the tests run."""

pytestmark = pytest.mark.timeout(1500, func_only=True)  # four installations, on a machine that may be busy


def sections():
    """Return the commands of each section."""
    parts = re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)
    return {
        title: re.findall(r"^    (\S.*)$", text.replace("\\\n", ""), re.MULTILINE)
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_each_section_with_commands_is_run():
    assert {title for title, commands in sections().items() if commands} == RUN
    assert "```" not in PAGE, "commands are indented"


@pytest.fixture
def run(cluster, tmp_path):
    """Run the commands of a section, with the names of this cluster; return what they print."""
    helm = tmp_path / "helm"
    helm.write_text(f"#!{sys.executable}\n{(ROOT / 'tests/support/helm_words.py').read_text()}")
    helm.chmod(0o755)
    repository, _, tag = cluster.image.rpartition(":")
    names = {
        "registry.example.com/punctual": repository,
        "image.tag=0.1.0": f"image.tag={tag}",
        "NODE": cluster.nodes[0],
    }

    def section(title, *, only=""):
        said = []
        for command in sections()[title]:
            if not re.search(only, command):
                continue
            for name, here in names.items():
                command = command.replace(name, here)  # noqa: PLW2901
            script = f"set -eo pipefail; cd {ROOT}; export PATH={tmp_path}:$PATH; {command}"
            done = cluster.run("bash", "-c", script)
            said.append(done.stdout + done.stderr)
        return "\n".join(said)

    return section


def pools(cluster):
    return {p["metadata"]["name"]: p for p in json.loads(cluster.kubectl("get", "pools", "-o", "json"))["items"]}


def is_held(cluster):
    return FINALIZER in pools(cluster)[POOL]["metadata"].get("finalizers", ())


async def test_jobs_outlive_an_uninstallation_and_an_upgrade(cluster, space, run):
    await eventually(cluster.in_order)
    two = {"processors": {"min": 2, "max": 2}, "cost": {"perUnit": "1s", "startup": "5s"}}
    await space.apply(space.manifest("left", units=40, deadline="25m", pause=4, **two))
    pods = {p["metadata"]["name"] for p in await space.running("left", 2)}
    await eventually(lambda: is_held(cluster))
    try:
        said = run("Uninstall")
        assert "left" in said
        assert "2 pods of 1 job still run" in said
        assert all(name in said for name in pods)
        assert not is_held(cluster)
        await eventually(lambda: not cluster.pods("operator") and not cluster.pods("agent"))
        assert not cluster.kubectl("get", "jobs,deployments", "-n", SYSTEM, "-o", "name")
        await eventually(lambda: len(space.pods_of("left", phase="Succeeded")) == 2, within=300)
        assert space.status("left")["units"]["done"] < 40, "no operator counts them"
        assert "left" in run("Reinstall with jobs left")
        status = await space.end("left")
    finally:
        cluster.install()
    assert (status["state"], status["units"]["done"]) == ("Completed", 40)
    assert {p["metadata"]["name"] for p in space.pods_of("left")} == pods, "nothing is done again"
    run("Install", only="^kubectl")
    run("Upgrade")
    await eventually(cluster.in_order)


async def test_what_a_hook_left_is_released_by_hand_and_all_is_removed(cluster, pool, run):
    if not cluster.own:
        pytest.skip("would remove the jobs of others")
    await eventually(cluster.in_order)
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", namespace)
    container = {"name": "main", "image": cluster.image, "command": ["sleep", "1000"]}
    spec = {"pool": POOL, "units": 10, "deadline": "30m", "cost": {"perUnit": "1m", "startup": "1s"}}
    spec["template"] = {"spec": {"containers": [container]}}
    job = {"apiVersion": "punctual.dev/v1alpha1", "kind": "DivisibleJob", "metadata": {"name": "open"}, "spec": spec}
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(job))
    try:
        await eventually(lambda: is_held(cluster))
        cut_short = "If the uninstallation was cut short"
        run(cut_short, only="describe job|logs|helm")
        cluster.kubectl("taint", "node", cluster.nodes[0], f"{LABEL}=x:NoSchedule")
        cluster.kubectl("delete", "pool", POOL, "--wait=false")
        assert is_held(cluster), "no operator removes the finalizer"
        run(cut_short, only="get pools|delete pods|taint")
        assert POOL not in pools(cluster)
        node = json.loads(cluster.kubectl("get", "node", cluster.nodes[0], "-o", "json"))
        assert LABEL not in {taint["key"] for taint in node["spec"].get("taints", ())}

        run("Remove everything")
        left = cluster.kubectl("get", "crd,namespace,clusterrole,priorityclass", "-o", "name").split()
        assert [name for name in left if "punctual" in name] in ([], ["namespace/punctual-demo"]), "or the demo's"
        assert not cluster.kubectl("get", "nodes", "-l", LABEL, "-o", "name")
        await eventually(lambda: not cluster.kubectl("get", "pods", "-n", namespace, "-o", "name"))
        run("Install")
        await eventually(cluster.in_order)
        assert cluster.kubectl("get", "nodes", "-l", LABEL, "-o", "name") == f"node/{cluster.nodes[0]}\n"
    finally:
        cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
        cluster.kubectl("label", "node", *cluster.nodes, f"{LABEL}={POOL}", "--overwrite")
        cluster.install()
        if POOL not in pools(cluster):
            cluster.kubectl("create", "-f", "-", stdin=json.dumps(testbed.pool(POOL)))
