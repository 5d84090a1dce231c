"""``punctual plan`` against an API server: all that it wants to know it can read there, and it writes nothing."""

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from kubectl_yaml import BAD_FIELDS, FIELDS, REFUSED, SCALARS, same
from state import NOW, manifest, pool_body, spec_of, state
from world import World, job

from punctual.notation.duration import format_time

AT = "--at", format_time(NOW + 5)


def store(kubectl, found):
    """Create the objects of a state, with their statuses."""
    for item in found["items"]:
        status = item.pop("status")
        item["metadata"] = {k: v for k, v in item["metadata"].items() if k in {"name", "namespace"}}
        kubectl("create", "-f", "-", input=json.dumps(item), check=True)
        where = ["-n", item["metadata"]["namespace"]] if "namespace" in item["metadata"] else []
        patch = "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})
        kubectl("patch", item["kind"], item["metadata"]["name"], *where, *patch, check=True)


def test_a_plan_is_made_of_what_the_api_server_holds(plan, kubectl):
    kubectl("create", "namespace", "planned", check=True)
    kubectl("label", "namespace", "planned", "team=a", check=True)
    body = pool_body("planned", labels={"team": "a"})
    w = World(spec=spec_of(body), now=NOW)
    w.node("n0", 2.0)
    w.tick()
    w.apply(job("first", units=100, deadline=NOW + 100, arrival=NOW, namespace="planned"))
    w.run(NOW + 5)
    store(kubectl, state(w, body))
    wanted = manifest(job("second", units=50, deadline=200.0), "planned")
    del wanted["metadata"]["namespace"]
    found = plan(wanted, *AT, "-n", "planned", "-o", "json")
    assert found.returncode == 0, found.stderr
    answer = json.loads(found.stdout)
    (running,) = w.records["first"].chunks[:1]
    assert (answer["admitted"], answer["namespace"]) == ("True", "planned")
    assert [c["createdTime"] for c in answer["chunks"]] == [format_time(running.promised_end)], "behind what runs"

    kubectl("label", "--overwrite", "namespace", "planned", "team=b", check=True)
    refused = plan(wanted, *AT, "-n", "planned")
    assert (refused.returncode, "NotAllowed" in refused.stdout) == (1, True)
    assert kubectl("get", "dj", "-n", "planned", "-o", "name").stdout == "divisiblejob.punctual.dev/first\n"


def test_what_kubectl_says_is_passed_on(plan):
    refused = plan(manifest(job("second", units=50, deadline=200.0)), "--context", "nowhere", "-n", "default")
    assert refused.returncode == 2
    assert refused.stderr.startswith("punctual: kubectl get")
    assert "nowhere" in refused.stderr


def test_the_rules_and_defaults_of_a_job_are_those_of_the_api_server(plan, kubectl):
    kubectl("create", "namespace", "tried", check=True)
    body = pool_body("tried")
    w = World(spec=spec_of(body), now=NOW)
    w.node("n0", 2.0)
    w.tick()
    store(kubectl, state(w, body))
    wanted = manifest(job("new", units=50, deadline=200.0), "tried")
    wanted["metadata"] |= {"namespace": "tried", "uid": "of another cluster", "resourceVersion": "5"}

    def answer(**spec):
        return plan({**wanted, "spec": wanted["spec"] | spec}, *AT, "-o", "json")

    found = answer(units=1e2)  # is written as 100.0
    assert found.returncode == 0, found.stderr
    assert "100 units" in json.loads(found.stdout)["message"]
    refused = answer(units=0)
    assert refused.returncode == 2
    assert refused.stderr.startswith('punctual: The DivisibleJob "new" is invalid: spec.units: Invalid value: 0: ')
    assert "kubectl" not in refused.stderr
    unknown = answer(unit=5)
    assert unknown.returncode == 2
    assert unknown.stderr.endswith('strict decoding error: unknown field "spec.unit"\n')
    assert not kubectl("get", "dj", "-n", "tried", "-o", "name").stdout

    kubectl("create", "-n", "tried", "-f", "-", input=json.dumps(wanted | {"metadata": {"name": "new"}}), check=True)
    again = answer(units=70)
    assert again.returncode == 0, again.stderr
    assert "70 units" in json.loads(again.stdout)["message"]
    assert answer(units=0).stderr == refused.stderr
    written = json.loads(kubectl("get", "dj", "-n", "tried", "-o", "json").stdout)["items"]
    assert [(item["metadata"]["name"], item["spec"]["units"]) for item in written] == [("new", 50)]


def integer(digits):
    """Return what kubectl writes without a point: an integer of 64 bits, or a float with few digits."""
    return int(digits) if -(2**63) <= int(digits) < 2**63 else float(digits)


def test_the_table_of_yaml_is_the_one_of_kubectl(kubectl, tmp_path):
    file = tmp_path / "x.yaml"

    def read(*values):
        lines = "kind: A", "apiVersion: v1", "spec:", *(f"- v:\n    {value}" for value in values)
        file.write_text("\n".join(lines))
        return kubectl("label", "--local", "-f", str(file), "a=b", "-o", "json")

    table = SCALARS | FIELDS
    found = [item["v"] for item in json.loads(read(*table).stdout, parse_int=integer)["spec"]]
    wrong = [text for text, value in zip(table, found, strict=True) if not same(value, table[text])]
    assert not wrong
    for text in (*REFUSED, *BAD_FIELDS):
        assert "error converting YAML to JSON" in read(text).stderr, text


@pytest.fixture
def guest(kubectl, kubeconfig, tmp_path, environment):
    """Environment of a user with the right to read our kinds in one namespace of the same name, and to get pools."""
    name = f"guest-{uuid.uuid4().hex[:8]}"
    kinds = "divisiblejobs.punctual.dev,profiles.punctual.dev,reservations.punctual.dev"
    kubectl("create", "namespace", name, check=True)
    kubectl("create", "clusterrole", name, "--verb=get", "--resource=pools.punctual.dev", check=True)
    kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", f"--user={name}", check=True)
    kubectl("create", "role", "view", "--verb=get,list,watch", f"--resource={kinds}", "-n", name, check=True)
    kubectl("create", "rolebinding", "view", "--role=view", f"--user={name}", "-n", name, check=True)
    config = json.loads(kubeconfig.read_text())
    config["users"][0]["user"]["as"] = name
    config["contexts"][0]["context"]["namespace"] = name
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    return name, {**environment, "KUBECONFIG": str(tmp_path / "kubeconfig")}


def test_a_user_of_one_namespace_gets_an_answer_that_says_what_it_leaves_out(plan, kubectl, guest):
    name, env = guest
    kubectl("create", "namespace", "other", check=True)
    body = pool_body("shared")
    w = World(spec=spec_of(body), now=NOW)
    w.node("n0", 3.0)
    w.tick()
    w.apply(job("theirs", units=100, deadline=NOW + 100, arrival=NOW, namespace="other"))
    w.apply(job("ours", units=50, deadline=NOW + 100, arrival=NOW, namespace=name))
    w.run(NOW + 5)
    assert [len(w.records[name].chunks) for name in ("theirs", "ours")] == [2, 1]
    store(kubectl, state(w, body))

    wanted = manifest(job("second", units=50, deadline=200.0), "shared")
    del wanted["metadata"]["namespace"]
    found = plan(wanted, *AT, "-o", "json", env=env)
    assert found.returncode == 0, found.stderr
    answer = json.loads(found.stdout)
    assert answer["unread"] == {"exceptNamespaces": [name], "busyProcessors": 2}
    shown = plan(wanted, *AT, env=env).stdout
    assert f"only jobs of namespace {name} were read" in shown
    assert "2 of 3 processors run other jobs now" in shown
    whole = json.loads(plan(wanted, *AT, "-n", name, "-o", "json").stdout)
    assert "unread" not in whole, "an administrator may read all jobs"

    refused = plan(wanted, *AT, "-n", "other", env=env)
    assert refused.returncode == 2
    assert f"user {name} may not list divisiblejobs in namespace other (Forbidden)" in refused.stderr
    assert "ClusterRole view" in refused.stderr


def test_a_user_of_one_namespace_gets_an_explanation_without_jobs_of_others(plugin, kubectl, guest):
    name, env = guest
    other = f"secret-{name}"
    kubectl("create", "namespace", other, check=True)
    body = pool_body(f"of-{name}")
    w = World(spec=spec_of(body), now=NOW)
    w.node("n0", 2.0)
    w.tick()
    w.apply(job("theirs", units=190, deadline=NOW + 100, arrival=NOW, namespace=other))
    w.apply(job("ours", units=150, deadline=NOW + 60, arrival=NOW, namespace=name))
    w.run(NOW + 5)
    store(kubectl, state(w, body))

    refused = plugin("punctual", "why", "ours", env=env)
    assert refused.returncode == 0, refused.stderr
    assert "InfeasibleCapacity" in refused.stdout
    assert f"only jobs of namespace {name} were read: you may not read others" in refused.stdout
    assert "the pods of its chunks were not read: you may not list pods" in refused.stdout
    assert other not in refused.stdout
    unknown = plugin("punctual", "why", "oars", env=env)
    assert (unknown.returncode, unknown.stderr) == (
        2,
        f"kubectl punctual: namespace {name} has no job and no chunk's pod oars; similar: ours\n",
    )
    pools = plugin("punctual", "pools", env=env)
    assert pools.returncode == 2
    assert f"--clusterrole=punctual-pools --user={name}" in pools.stderr
    top = plugin("punctual", "top", env=env)
    assert "pools are left out: you may not read them" in top.stdout
    assert "ours" in top.stdout


def test_a_user_of_one_namespace_watches_its_jobs(kubectl, guest):
    name, env = guest
    body = manifest(job("done", units=50, deadline=200.0), "shared")
    body["metadata"]["namespace"] = name
    said = {"type": "Completed", "status": "True", "reason": "Completed", "message": "all units are done"}
    times = {"lastTransitionTime": format_time(NOW), "observedGeneration": 1}
    ended = {"state": "Completed", "finishTime": format_time(NOW), "conditions": [{**said, **times}]}
    store(kubectl, {"items": [{**body, "status": ended}]})
    command = [Path(sys.executable).with_name("punctual"), "watch", "done"]
    watched = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert (watched.returncode, "done: Completed" in watched.stdout) == (0, True), watched.stderr
