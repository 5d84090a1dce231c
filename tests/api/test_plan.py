"""``punctual plan`` against an API server: all that it wants to know it can read there, and it writes nothing."""

import json

from state import NOW, manifest, pool_body, spec_of, state
from world import World, job

from punctual.kube.format.duration import format_time

AT = "--at", format_time(NOW + 5)


def test_a_plan_is_made_of_what_the_api_server_holds(plan, kubectl):
    kubectl("create", "namespace", "planned", check=True)
    kubectl("label", "namespace", "planned", "team=a", check=True)
    body = pool_body("planned", labels={"team": "a"})
    w = World(spec=spec_of(body), now=NOW)
    w.node("n0", 2.0)
    w.tick()
    w.apply(job("first", units=100, deadline=NOW + 100, arrival=NOW, namespace="planned"))
    w.run(NOW + 5)
    for item in state(w, body)["items"]:
        status = item.pop("status")
        item["metadata"] = {k: v for k, v in item["metadata"].items() if k in {"name", "namespace"}}
        kubectl("create", "-f", "-", input=json.dumps(item), check=True)
        where = ["-n", item["metadata"]["namespace"]] if "namespace" in item["metadata"] else []
        patch = "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})
        kubectl("patch", item["kind"], item["metadata"]["name"], *where, *patch, check=True)

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
