"""The chart as users meet it: what it renders, what it refuses, what its pods may do."""

import re
import runpy
import tomllib
from pathlib import Path

import helm_python
import kubernetes_validate
import pytest
import yaml

from punctual import wire
from punctual.cli.cluster.page import LEADER
from punctual.cli.cluster.page import PORT as PAGE_PORT
from punctual.kube.agents.ca import service_names
from punctual.kube.cluster.placeholder_pod import PlaceholderSettings
from punctual.kube.election.claim import NAME
from punctual.kube.main import Config

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "punctual"
MODEL = runpy.run_path(str(ROOT / "hack" / "values_schema.py"))

EVERYTHING = {
    "fullnameOverride": "deadlines",
    "image": {"repository": "registry.example.org/lab/punctual", "tag": "1.2", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "operator": {
        "replicas": 3,
        "logLevel": "DEBUG",
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "priorityClassName": "high",
    },
    "agent": {
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "",
        "seLinuxOptions": {"type": "spc_t"},
    },
    "placeholder": {"image": "registry.example.org/pause:3", "priority": 10},
    "networkPolicy": {
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "pageFrom": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
    },
    "page": {"enabled": True},
    "policy": {
        "namespaceSelector": {"matchLabels": {"punctual": "yes"}},
        "allow": ["HostPath"],
        "serviceAccounts": ["loader", "team-a/builder"],
    },
    "prometheus": {"url": "http://prometheus.monitoring:9090/main"},
    "monitoring": {"labels": {"release": "prometheus"}, "interval": "1m"},
}
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
CASES = {
    "defaults": {},
    "everything": EVERYTHING,
    "by digest": {"image": {"digest": DIGEST}},
    "one replica, no policy, no kinds": {
        "operator": {"replicas": 1},
        "networkPolicy": {"enabled": False},
        "crds": {"enabled": False},
    },
}


def of(objects, kind, name=None):
    found = [o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]
    assert found, f"no {kind} {name or ''}"
    return found[0]


def containers(objects):
    for o in objects:
        if o["kind"] in ("Deployment", "DaemonSet", "Job"):
            yield from ((o, c) for c in o["spec"]["template"]["spec"]["containers"])


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_lint_finds_nothing_to_warn_of(values):
    report = helm_python.lint(CHART, values, strict=True)
    assert report["errors"] == []
    assert [m for m in report["messages"] if m["severity"] > 1] == []


@pytest.mark.parametrize("version", ["1.30", "1.33", "1.37"])
@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_every_object_is_strictly_valid(render, values, version):
    objects = render(values)
    for o in objects:
        assert kubernetes_validate.validate(o, version, strict=True).startswith(version)  # not an older schema
    keys = [(o["apiVersion"], o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
    assert len(set(keys)) == len(keys)


def test_monitors_are_made_where_asked_for_only(render):
    kinds = {o["kind"] for o in render({"monitoring": {"monitors": "Always", "labels": {"release": "prometheus"}}})}
    monitors = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
    assert monitors <= kinds
    for wish in ("Auto", "Never"):  # offline there is no cluster that could have these kinds
        assert not monitors & {o["kind"] for o in render({"monitoring": {"monitors": wish}})}


def test_the_dashboards_of_the_chart_are_those_of_the_files(render):
    found = {}
    for o in render({"monitoring": {"dashboards": {"labels": {"wanted": "yes"}}}}):
        if o["kind"] == "ConfigMap" and o["metadata"]["labels"].get("wanted") == "yes":
            found |= o["data"]
    assert found == {path.name: path.read_text() for path in (CHART / "dashboards").glob("*.json")}
    assert len(found) == 4
    off = render({"monitoring": {"dashboards": {"enabled": False}}})
    assert not [o for o in off if o["metadata"]["name"].endswith("-dashboard")]


def test_the_rules_of_the_chart_are_those_of_the_file_and_name_the_runbooks(render):
    rule = of(
        render({"monitoring": {"monitors": "Always", "runbooks": "https://wiki.example.com/r"}}), "PrometheusRule"
    )
    text = (CHART / "alerts/punctual.yaml").read_text()
    assert rule["spec"] == yaml.safe_load(text.replace("docs/runbooks", "https://wiki.example.com/r"))
    assert "https://wiki.example.com/r/PunctualPromiseBroken.md" in str(rule)


@pytest.mark.parametrize(("kind", "part"), [("Deployment", "operator"), ("DaemonSet", "agent")])
def test_nodes_that_a_pool_holds_keep_neither_operator_nor_agent_away(render, kind, part):
    more = {"key": "x", "operator": "Exists"}
    spec = of(render({part: {"tolerations": [more]}}), kind)["spec"]["template"]["spec"]
    assert spec["tolerations"] == [{"key": "punctual.dev/pool", "operator": "Exists"}, more]


# values


def test_the_schema_is_the_models():
    assert (CHART / "values.schema.json").read_text() == MODEL["schema"](), "run hack/values_schema.py"


def test_defaults_are_the_models_and_each_value_has_a_comment():
    text = (CHART / "values.yaml").read_text()
    assert yaml.safe_load(text) == MODEL["Values"]().model_dump(by_alias=True, exclude={"global_"}) | {"global": {}}
    lines = text.splitlines()
    inside = {"requests", "limits", "kubernetes.io/os"}  # Kubernetes' own words, or a user's
    for above, line in zip(["", *lines], lines, strict=False):
        if (key := re.match(r" *([\w./]+):", line)) and key[1] not in inside:
            assert above.lstrip().startswith("#"), f"{line!r} has no comment"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"operator": {"replica": 2}}, "replica"),
        ({"operatr": {}}, "operatr"),
        ({"operator": {"replicas": "two"}}, "/operator/replicas"),
        ({"operator": {"replicas": 0}}, "/operator/replicas"),
        ({"operator": {"logLevel": "LOUD"}}, "/operator/logLevel"),
        ({"operator": {"resources": {"request": {}}}}, "request"),
        ({"operator": {"resources": {"limits": {"memory": "much"}}}}, "/operator/resources/limits/memory"),
        ({"agent": {"cgroupRoot": "sys/fs/cgroup"}}, "/agent/cgroupRoot"),
        ({"image": {"repository": ""}}, "/image/repository"),
        ({"image": {"digest": "sha256:12"}}, "/image/digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"monitoring": {"interval": "often"}}, "/monitoring/interval"),
        ({"monitoring": {"monitors": True}}, "/monitoring/monitors"),
        ({"imagePullSecrets": ["pull"]}, "/imagePullSecrets/0"),
        ({"fullnameOverride": "No Spaces"}, "/fullnameOverride"),
        ({"crds": {"enabled": "yes"}}, "/crds/enabled"),
        ({"placeholder": {"priority": "low"}}, "/placeholder/priority"),
        ({"policy": {"allow": ["hostPath"]}}, "/policy/allow/0"),
        ({"policy": {"serviceAccounts": ["a/b/c"]}}, "/policy/serviceAccounts/0"),
        ({"policy": {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}}, "operator"),
        ({"prometheus": {"url": "prometheus:9090"}}, "/prometheus/url"),
        ({"prometheus": {"url": "http://me:secret@prometheus"}}, "/prometheus/url"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(chart, values, named):
    with pytest.raises(helm_python.HelmValuesError, match=re.escape(named)):
        chart.render(values, name="punctual", namespace="lab")


def test_a_chart_that_contains_this_one_may_set_globals(chart):
    chart.validate_schema({"global": {"anything": 1}})


# kinds


def test_the_kinds_are_those_of_crds_and_stay_when_the_chart_goes(render):
    ours = {p.name: p.read_text() for p in sorted((ROOT / "crds").glob("*.yaml"))}
    theirs = {p.name: p.read_text() for p in sorted((CHART / "crd-files").glob("*.yaml"))}
    assert theirs == ours, "run: cp crds/*.yaml charts/punctual/crd-files/"
    rendered = {o["metadata"]["name"]: o for o in render() if o["kind"] == "CustomResourceDefinition"}
    assert len(rendered) == len(ours)
    for text in ours.values():
        want = yaml.safe_load(text)
        found = rendered[want["metadata"]["name"]]
        assert found["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert found == want


# pods


def test_the_image_is_the_charts_version_unless_told(render):
    assert {c["image"] for _, c in containers(render())} == {"punctual:0.1.0"}
    assert {c["image"] for _, c in containers(render({"image": {"tag": "dev"}}))} == {"punctual:dev"}
    assert {c["image"] for _, c in containers(render(EVERYTHING))} == {"registry.example.org/lab/punctual:1.2"}


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_the_hook_that_uninstalls_runs_where_and_as_whom_the_operator_does(render, values):
    objects = render(values)
    hook, operator = (of(objects, kind) for kind in ("Job", "Deployment"))
    notes = hook["metadata"]["annotations"]
    assert notes["helm.sh/hook"] == "pre-delete"
    assert notes["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    pods = [o["spec"]["template"]["spec"] for o in (hook, operator)]
    same = (
        "serviceAccountName", "imagePullSecrets", "nodeSelector", "tolerations", "priorityClassName", "securityContext",
        "volumes",
    )  # fmt: skip
    assert [pods[0].get(field) for field in same] == [pods[1].get(field) for field in same]
    ours, theirs = (pod["containers"][0] for pod in pods)
    same = "image", "imagePullPolicy", "resources", "securityContext", "volumeMounts"
    assert [ours.get(field) for field in same] == [theirs.get(field) for field in same]
    env = {e["name"]: e for e in theirs["env"]}
    assert all(env[e["name"]] == e for e in ours["env"]), "the same Leases"
    selector = operator["spec"]["selector"]["matchLabels"]
    labels = hook["spec"]["template"]["metadata"]["labels"]
    assert not selector.items() <= labels.items(), "no Service and no Deployment takes it for a replica"
    assert hook["spec"]["activeDeadlineSeconds"] < 300, "Helm waits 5 minutes"
    assert ours["command"][0] in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


def test_the_operator_and_the_hook_may_suspend_jobs_and_neither_create_nor_delete_them(render):
    rules = [
        rule for o in render() if o["kind"] == "ClusterRole" for rule in o["rules"] if "batch" in rule["apiGroups"]
    ]
    assert [(rule["resources"], rule["verbs"]) for rule in rules] == [(["jobs"], ["list", "watch", "patch"])]


@pytest.mark.parametrize("tag", ["", "1.2"])
def test_an_image_by_digest_is_that_one_everywhere_whatever_the_tag(render, tag):
    image = {"repository": "registry.example.org:5000/lab/punctual", "tag": tag, "digest": DIGEST}
    objects = render({"image": image})
    by_digest = f"registry.example.org:5000/lab/punctual@{DIGEST}"
    assert {c["image"] for _, c in containers(objects)} == {by_digest}
    operator = next(c for _, c in containers(objects) if c["name"] == "operator")
    env = {e["name"]: e.get("value") for e in operator["env"]}
    assert env["PUNCTUAL_IMAGE"] == by_digest
    placeholder = yaml.safe_load(env["PUNCTUAL_PLACEHOLDER"])
    assert placeholder["spec"]["containers"][0]["image"] == by_digest


def test_who_may_edit_books_nothing_ahead(render):
    roles = {o["metadata"]["name"]: o for o in render() if o["kind"] == "ClusterRole"}
    may = {
        name: {(r, v) for rule in o["rules"] for r in rule["resources"] for v in rule["verbs"]}
        for name, o in roles.items()
    }
    joined = {
        name: {key.rpartition("-")[2] for key in o["metadata"]["labels"] if "/aggregate-to-" in key}
        for name, o in roles.items()
    }
    books = {name for name in roles if ("reservations", "create") in may[name]}
    assert books == {"lab-punctual-reserve"}
    assert joined["lab-punctual-reserve"] == set()
    every = {"create", "update", "patch", "delete", "deletecollection"}
    assert may["lab-punctual-reserve"] == {("reservations", verb) for verb in every}
    assert joined["lab-punctual-edit"] == {"edit", "admin"}
    assert joined["lab-punctual-view"] == {"view"}
    assert ("reservations", "get") in may["lab-punctual-view"]
    assert may["lab-punctual-pools"] == {("pools", verb) for verb in ("get", "list", "watch")}
    assert joined["lab-punctual-pools"] == set()


def test_no_container_may_do_more_than_it_needs(render):
    seen = []
    for o, c in containers(render()):
        pod = o["spec"]["template"]["spec"]
        seen.append(c["name"])
        assert c["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
        assert {"requests", "limits"} == c["resources"].keys()
        assert "cpu" not in c["resources"]["limits"]  # a throttled planner or agent is late
    assert seen == ["agent", "watchdog", "operator", "uninstall"]


def test_the_operator_is_nobody_and_mounts_no_host_folder(render):
    pod = of(render(), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65532
    assert not [v for v in pod["volumes"] if "hostPath" in v]


def test_the_agent_has_one_token_for_the_operator_alone_and_no_rights(render):
    objects = render()
    pod = of(objects, "DaemonSet")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    tokens = [s for v in pod["volumes"] for s in v.get("projected", {}).get("sources", [])]
    assert [t["serviceAccountToken"]["audience"] for t in tokens] == [wire.AUDIENCE]
    bound = [s["name"] for o in objects if o["kind"].endswith("RoleBinding") for s in o["subjects"]]
    assert set(bound) == {"punctual-operator"}


POLICY = "ValidatingAdmissionPolicy"


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_each_policy_denies_what_the_operators_account_asks_for_and_nothing_of_others(render, values):
    objects = render(values)
    account = of(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
    policies = {o["metadata"]["name"]: o["spec"] for o in objects if o["kind"] == POLICY}
    bindings = [o["spec"] for o in objects if o["kind"] == f"{POLICY}Binding"]
    assert {b["policyName"] for b in bindings} == policies.keys()
    assert all(b["validationActions"] == ["Deny"] for b in bindings)
    for name, spec in policies.items():
        assert spec["failurePolicy"] == "Fail"
        if name.endswith("-accounts"):  # of our own kind alone
            assert [r["apiGroups"] for r in spec["matchConstraints"]["resourceRules"]] == [["punctual.dev"]]
        else:
            asked = [c["expression"] for c in spec["matchConditions"]]
            assert asked == [f'request.userInfo.username == "system:serviceaccount:lab:{account}"']


def test_each_write_of_the_operator_in_the_cluster_has_a_policy(render):
    """Beside statuses of our kinds, reviews, and what RBAC names object by object."""
    objects = render()
    writes = {
        (group, resource, verb)
        for o in objects
        if o["kind"] in ("Role", "ClusterRole")
        and re.search("-(kinds|chunks|reviews|operator|claim)$", o["metadata"]["name"])
        for rule in o["rules"]
        if "resourceNames" not in rule
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch") and not resource.endswith(("/status", "reviews"))
    }
    judged = {
        (group, resource): rule["operations"]
        for o in objects
        if o["kind"] == POLICY and not o["metadata"]["name"].endswith(("-accounts", "-elsewhere"))
        for rule in o["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    operations = {"create": "CREATE", "patch": "UPDATE", "update": "UPDATE", "delete": "DELETE"}
    missing = {w for w in writes if not {operations[w[2]], "*"} & set(judged.get(w[:2], ()))}
    assert ("", "pods", "delete") in writes
    assert missing == set()


def test_an_upgrade_that_keeps_the_values_of_an_earlier_chart_has_the_default_policies(render):
    def policies(objects):
        return [o for o in objects if o["kind"].startswith(POLICY)]

    assert policies(render({"policy": None})) == policies(render())


def test_policies_can_be_left_out(render):
    assert not [o for o in render({"policy": {"enabled": False}}) if o["kind"].startswith(POLICY)]


def test_the_agent_sees_pods_folders_read_only(render):
    for o, c in containers(render()):
        if o["kind"] == "DaemonSet":
            hosts = {
                v["name"]: v["hostPath"]["path"] for v in o["spec"]["template"]["spec"]["volumes"] if "hostPath" in v
            }
            mounts = {hosts[m["name"]]: m.get("readOnly", False) for m in c["volumeMounts"] if m["name"] in hosts}
            assert mounts.pop("/sys/fs/cgroup") is False
            assert mounts in ({}, {"/var/lib/kubelet/pods": True, "/run/punctual": False})


def test_names_that_meet_elsewhere_agree(render):
    for values in ({}, EVERYTHING):
        objects = render(values)
        env = {
            c["name"]: {e["name"]: e.get("value") for e in c.get("env", [])} for _, c in containers(objects)
        }  # by container
        operator, agent = env["operator"], env["agent"]
        service = of(objects, "Service", operator["PUNCTUAL_SERVICE"])
        host, port = re.fullmatch(r"https://(.*):(\d+)", agent["OPERATOR_URL"]).groups()
        assert host in service_names(operator["PUNCTUAL_SERVICE"], "lab")
        assert [p["port"] for p in service["spec"]["ports"] if p["name"] == "reports"] == [int(port)]
        assert service["spec"]["selector"]["punctual.dev/leader"] == "true"
        account = of(objects, "DaemonSet")["spec"]["template"]["spec"]["serviceAccountName"]
        assert operator["PUNCTUAL_AGENT_ACCOUNT"] == f"system:serviceaccount:lab:{account}"
        assert operator["PUNCTUAL_IMAGE"] in {c["image"] for _, c in containers(objects)}
        assert of(objects, "Secret", operator["PUNCTUAL_CA"]).keys() & {"data", "stringData"} == set()
        volumes = of(objects, "DaemonSet")["spec"]["template"]["spec"]["volumes"]
        assert {"name": operator["PUNCTUAL_CA"]} in [v.get("configMap") for v in volumes]
        ports = {p["name"]: str(p["containerPort"]) for _, c in containers(objects) for p in c.get("ports", [])}
        assert operator["PUNCTUAL_REPORT_PORT"] == ports["reports"]
        claimed = of(objects, "Role", "lab-punctual-claim" if not values else "lab-deadlines-claim")
        assert claimed["metadata"]["namespace"] == operator["PUNCTUAL_CLAIM_NAMESPACE"] != "lab"
        assert [r.get("resourceNames", []) for r in claimed["rules"]] == [[], [NAME]]
        rules = of(objects, "Role", service["metadata"]["name"] + "-operator")["rules"]
        assert {n for r in rules for n in r.get("resourceNames", [])} == {
            operator["PUNCTUAL_LEASE"],
            operator["PUNCTUAL_CA"],
        }


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_placeholders_are_below_chunks_and_the_operator_and_may_no_more_than_they_need(render, values):
    objects = render(values)
    env = next(c["env"] for _, c in containers(objects) if c["name"] == "operator")
    manner = PlaceholderSettings.read(next(e["value"] for e in env if e["name"] == "PUNCTUAL_PLACEHOLDER"), "lab")
    classes = {o["metadata"]["name"]: o for o in objects if o["kind"] == "PriorityClass"}
    own = classes.pop(manner.spec["priorityClassName"])
    assert (own["value"], own["preemptionPolicy"]) == (manner.priority, "Never")
    ((name, above),) = classes.items()
    assert (name, above["value"]) == (manner.chunk_class, manner.priority + 1)
    asked = values.get("operator", {}).get("priorityClassName")
    operator = of(objects, "Deployment")["spec"]["template"]["spec"]
    assert operator["priorityClassName"] == (asked or manner.chunk_class)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": manner.spec}
    kubernetes_validate.validate(pod, "1.30", strict=True)
    (container,) = manner.spec["containers"]
    assert ("command" in container) == ("placeholder" not in values)  # another image has a sleep of its own
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert manner.spec["automountServiceAccountToken"] is False
    assert manner.spec["terminationGracePeriodSeconds"] > 0  # else its node would refuse who comes next


def test_services_and_policies_select_the_pods_they_mean(render):
    objects = render()
    labels = {
        o["kind"]: o["spec"]["template"]["metadata"]["labels"] for o in objects if "template" in o.get("spec", {})
    }
    leader = labels["Deployment"] | {"punctual.dev/leader": "true"}

    def selects(selector, pod):
        return selector.items() <= pod.items()

    assert not selects(of(objects, "Service", "punctual")["spec"]["selector"], labels["Deployment"])
    assert selects(of(objects, "Service", "punctual")["spec"]["selector"], leader)
    assert selects(of(objects, "Service", "punctual-metrics")["spec"]["selector"], labels["Deployment"])
    policy = of(objects, "NetworkPolicy", "punctual-operator")["spec"]
    assert selects(policy["podSelector"]["matchLabels"], labels["Deployment"])
    sender = policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert selects(sender, labels["DaemonSet"])
    assert not selects(sender, labels["Deployment"])
    monitor = of(render({"monitoring": {"monitors": "Always"}}), "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    chosen = [
        o["metadata"]["name"] for o in objects if o["kind"] == "Service" and selects(monitor, o["metadata"]["labels"])
    ]
    assert chosen == ["punctual-metrics"]


def test_the_operator_knows_the_prometheus_that_the_values_name(render):
    found = []
    for values in ({}, EVERYTHING):
        (operator,) = of(render(values), "Deployment")["spec"]["template"]["spec"]["containers"]
        env = {e["name"]: e["value"] for e in operator["env"] if "value" in e}
        found.append(Config.read(env).prometheus)
    assert found == ["", "http://prometheus.monitoring:9090/main"]


def test_the_page_is_off_unless_it_is_enabled(render):
    off, on = render(), render(EVERYTHING)
    assert "8444" not in yaml.safe_dump_all(off)
    assert "subjectaccessreviews" not in yaml.safe_dump_all(off)
    (operator,) = of(on, "Deployment")["spec"]["template"]["spec"]["containers"]
    env = {e["name"]: e.get("value") for e in operator["env"]}
    ports = {p["name"]: p["containerPort"] for p in operator["ports"]}
    assert (env["PUNCTUAL_PAGE_PORT"], ports["page"]) == ("8444", 8444)
    assert int(env["PUNCTUAL_PAGE_LOOPBACK_PORT"]) == PAGE_PORT, "kubectl punctual page forwards it"
    assert of(on, "Service", "deadlines")["spec"]["ports"][-1] == {"name": "page", "port": 8444, "targetPort": "page"}
    assert of(on, "NetworkPolicy", "deadlines-operator")["spec"]["ingress"][-1] == {
        "ports": [{"port": "page"}],
        "from": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
    }
    reviews = next(o for o in on if o["kind"] == "ClusterRole" and o["metadata"]["name"].endswith("-reviews"))
    assert {r for rule in reviews["rules"] for r in rule["resources"]} == {"tokenreviews", "subjectaccessreviews"}
    labels = of(on, "Deployment")["spec"]["template"]["metadata"]["labels"] | {"punctual.dev/leader": "true"}
    assert dict(word.split("=") for word in LEADER.split(",")).items() <= labels.items()


def test_two_releases_share_no_object_but_the_kinds(render):
    def keys(objects):
        return {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects}

    values = {"crds": {"enabled": False}}
    assert not keys(render(values)) & keys(render(values, namespace="other"))
    assert not keys(render(values)) & keys(render(values, name="second"))


@pytest.mark.parametrize("release", ["my.lab", "a" * 39 + "--" + "b" * 12])
def test_names_of_services_are_valid_whatever_the_release_is_called(render, release):
    for o in render({"crds": {"enabled": False}}, name=release):
        if o["kind"] in ("Service", "Deployment", "DaemonSet"):
            assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", o["metadata"]["name"])
            assert len(o["metadata"]["name"]) <= 63


def test_a_disruption_budget_needs_a_second_replica(render):
    assert of(render(), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert not [o for o in render({"operator": {"replicas": 1}}) if o["kind"] == "PodDisruptionBudget"]


def test_notes_tell_the_next_command(chart):
    notes = chart.render({}, name="punctual", namespace="lab")["punctual/templates/NOTES.txt"]
    for words in ("kubectl label node", "kind: Pool", "kind: DivisibleJob", "kubectl get divisiblejobs"):
        assert words in notes
    notes = chart.render({"crds": {"enabled": False}}, name="punctual", namespace="lab")["punctual/templates/NOTES.txt"]
    assert "kubectl apply --server-side -f crds/" in notes
