"""The chart on real kubelets: who runs, who may do what, what stays when it is upgraded or goes."""

import json

import pytest
from live import ROOT, SYSTEM, eventually

KINDS = (
    "divisiblejobs.punctual.dev",
    "pools.punctual.dev",
    "profiles.punctual.dev",
    "reservations.punctual.dev",
)


def listed(cluster, *words):
    return json.loads(cluster.kubectl("get", *words, "-o", "json"))["items"]


def account(name):
    return f"system:serviceaccount:{SYSTEM}:punctual-{name}"


def may(cluster, who, *words):
    """Ask the API server whether an account may do that."""
    answer = cluster.run("kubectl", "auth", "can-i", *words, f"--as={account(who)}", check=False).stdout.strip()
    assert answer in ("yes", "no"), answer
    return answer == "yes"


async def test_an_agent_runs_on_each_node_of_the_pool_without_any_capability(cluster):
    await eventually(cluster.in_order)
    pods = {p["spec"]["nodeName"]: p for p in cluster.pods("agent")}
    assert set(cluster.nodes) <= set(pods)
    for pod in pods.values():
        # as the kernel says, of the agent's own process
        words = ("exec", "-n", SYSTEM, pod["metadata"]["name"], "-c", "agent", "--", "cat", "/proc/1/status")
        status = dict(line.split(":\t", 1) for line in cluster.kubectl(*words).splitlines() if ":\t" in line)
        assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
        assert status["NoNewPrivs"].strip() == "1"


async def test_the_service_leads_to_the_leader_alone_and_no_agent_is_silent(cluster):
    leader = await eventually(cluster.in_order)

    def led_to():
        slices = listed(cluster, "endpointslices", "-n", SYSTEM, "-l", "kubernetes.io/service-name=punctual")
        return [a for s in slices for e in s.get("endpoints") or () for a in e["addresses"]]

    await eventually(lambda: led_to() == [leader["status"]["podIP"]])

    def heard():
        numbers = cluster.metrics(leader["metadata"]["name"], 8080)
        return numbers if numbers["punctual_agents_silent"] == 0 else None

    before = await eventually(heard)
    assert before["punctual_leader"] == 1

    def more():  # one report per node and second
        now = cluster.metrics(leader["metadata"]["name"], 8080)
        return now["punctual_agent_reports_total"] >= before["punctual_agent_reports_total"] + 3 * len(cluster.nodes)

    await eventually(more)


@pytest.mark.parametrize(
    "words",
    [
        ("get", "secrets", "-A"),
        ("list", "secrets", "-n", SYSTEM),
        ("create", "secrets", "-n", SYSTEM),
        ("get", "secret/another", "-n", SYSTEM),
        ("update", "leases/another", "-n", SYSTEM),
        ("create", "pods", "--subresource=exec"),
        ("get", "nodes", "--subresource=proxy"),
        ("update", "nodes"),
        ("delete", "nodes"),
        ("delete", "configmaps"),
        ("delete", "namespaces"),
        ("delete", "pools"),
        ("update", "divisiblejobs"),
        ("create", "jobs"),
        ("delete", "jobs"),
        ("create", "clusterroles"),
        ("create", "serviceaccounts", "--subresource=token"),
        ("impersonate", "users"),
    ],
    ids=" ".join,
)
def test_the_operator_may_not(cluster, words):
    assert not may(cluster, "operator", *words)


def test_the_operator_may_do_its_work(cluster):
    assert may(cluster, "operator", "update", "secret/punctual-ca", "-n", SYSTEM)
    assert may(cluster, "operator", "create", "pods", "-A")
    assert may(cluster, "operator", "update", "divisiblejobs", "--subresource=status", "-A")
    assert may(cluster, "operator", "patch", "jobs", "-A")


def test_the_agent_may_nothing_but_what_everybody_may(cluster):
    def rights(who):
        text = cluster.kubectl(
            "auth", "can-i", "--list", "--no-headers", f"--as={who}", "--as-group=system:authenticated"
        )
        return set(text.splitlines())

    assert rights(account("agent")) == rights("somebody")


async def test_people_may_with_jobs_what_they_may_with_pods(cluster, space):
    """By the roles that Kubernetes has for people, in the namespace where they have them; answers and pools are not
    theirs to write."""
    for role in ("view", "edit"):
        await space.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}er")

    def can(who, *words):
        done = cluster.run("kubectl", "auth", "can-i", *words, f"--as={who}", "-n", space.namespace, check=False)
        return done.stdout.strip()

    answers = {
        ("viewer", "list", "divisiblejobs"): "yes",
        ("viewer", "watch", "profiles"): "yes",
        ("viewer", "create", "divisiblejobs"): "no",
        ("editer", "delete", "divisiblejobs"): "yes",
        ("editer", "patch", "profiles"): "yes",
        ("editer", "patch", "divisiblejobs", "--subresource=status"): "no",
        ("editer", "create", "pools"): "no",
    }
    # bindings, and rights gathered from other roles, take their time to be in force
    await eventually(lambda: all(can(*asked) == "yes" for asked, answer in answers.items() if answer == "yes"))
    assert {asked: can(*asked) for asked in answers} == answers


async def test_an_upgrade_to_the_same_changes_no_pod_and_keeps_the_authority(cluster, pool):
    await eventually(cluster.in_order)

    def seen():
        pods = listed(cluster, "pods", "-n", SYSTEM)
        secret = json.loads(cluster.kubectl("get", "secret", "punctual-ca", "-n", SYSTEM, "-o", "json"))
        return sorted(p["metadata"]["uid"] for p in pods), secret["data"]

    before = seen()
    cluster.install()
    assert seen() == before


async def test_the_kinds_and_their_objects_outlive_the_chart(cluster, pool):
    """Uninstalled and installed anew: what was asked is still there, a new operator takes it up."""
    kinds = {k["metadata"]["uid"] for k in listed(cluster, "crd", *KINDS)}
    pools = {p["metadata"]["uid"] for p in listed(cluster, "pools") if "deletionTimestamp" not in p["metadata"]}
    assert pools
    try:
        cluster.run(ROOT / "hack/install-chart", "--namespace", SYSTEM, "--uninstall")
        ours = "deployments,daemonsets,services,secrets,roles,networkpolicies"
        await eventually(lambda: not listed(cluster, ours, "-n", SYSTEM))
        bound = "validatingadmissionpolicies,validatingadmissionpolicybindings"
        assert "punctual" not in cluster.kubectl("get", f"clusterroles,clusterrolebindings,{bound}", "-o", "name")
        assert {k["metadata"]["uid"] for k in listed(cluster, "crd", *KINDS)} == kinds
        assert {p["metadata"]["uid"] for p in listed(cluster, "pools")} >= pools
    finally:
        cluster.install()
    leader = await eventually(cluster.in_order)

    def heard():  # the authority is a new one
        return cluster.metrics(leader["metadata"]["name"], 8080).get("punctual_agents_silent") == 0

    await eventually(heard, within=180)
