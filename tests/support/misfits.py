"""Pod templates that a cluster refuses, enlarges, delays or ends, or that only look like it: changes to a plain one.

A change says what it makes of the template; ``late``: its pods may come to no end, or to a later one than declared.
"""

from dataclasses import dataclass, field

from cluster_model.admission import injects, limit_range, overhead
from hypothesis import strategies as st

APP = {"app": "misfit"}


@dataclass
class Template:
    """A template under change, with the admission plugins of its namespace."""

    chi: float
    spec: dict = field(default_factory=dict)
    plugins: list = field(default_factory=list)
    late: bool = False

    def __post_init__(self):
        self.spec["containers"] = [{"name": "main", "image": f"work:{self.chi}"}]

    @property
    def work(self):
        return self.spec["containers"][0]

    def body(self):
        return {"metadata": {"labels": APP}, "spec": self.spec}


def memory(draw):
    return draw(st.sampled_from([{}, {"memory": "1Mi"}, {"memory": "63Mi"}, {"memory": "64Mi"}]))


def amounts(draw):
    """Return what the cluster adds; a template may not name CPU."""
    cpu = draw(st.sampled_from([{}, {"cpu": "1m"}, {"cpu": "30m"}, {"cpu": "99m"}, {"cpu": "100m"}, {"cpu": "150m"}]))
    return {**cpu, **memory(draw)}


def term(draw):
    key = draw(st.sampled_from(["disk", "zone", "kubernetes.io/hostname"]))
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]))
    values = draw(st.sampled_from([["ssd"], ["a"], ["n1"], ["ssd", "hdd"], ["n1", "n2"]]))
    return {"key": key, "operator": operator} | ({"values": values} if operator.endswith("In") else {})


def selects(draw, t):
    t.spec["nodeSelector"] = {"disk": draw(st.sampled_from(["ssd", "hdd", "tape"]))}


def requires(draw, t):
    terms = [{"matchExpressions": [term(draw)]} for _ in range(draw(st.integers(1, 2)))]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    t.spec.setdefault("affinity", {})["nodeAffinity"] = required


def prefers(draw, t):
    wish = [{"weight": 1, "preference": {"matchExpressions": [term(draw)]}}]
    t.spec.setdefault("affinity", {})["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": wish}


def tolerates(draw, t):
    how = draw(st.sampled_from([{"operator": "Exists"}, {"value": "us"}, {"value": "them"}]))
    t.spec["tolerations"] = [{"key": "own", "effect": "NoSchedule", **how}]


def names_node(draw, t):
    t.spec["nodeName"] = draw(st.sampled_from(["n1", "n2", "n9"]))


def takes_port(draw, t):
    t.work["ports"] = [{"containerPort": 80, "hostPort": draw(st.sampled_from([80, 8080]))}]


def repels(draw, t):
    apart = {"labelSelector": {"matchLabels": APP}, "topologyKey": "kubernetes.io/hostname"}
    apart |= draw(st.sampled_from([{}, {"labelSelector": {}}, {"labelSelector": {}, "namespaceSelector": {}}]))
    t.spec.setdefault("affinity", {})["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    t.late = True


def waits_for_gate(_, t):
    t.spec["schedulingGates"] = [{"name": "example.com/quota"}]
    t.late = True


def has_scheduler(_, t):
    t.spec["schedulerName"] = "vulcano"
    t.late = True


def needs_memory(draw, t):
    t.work["resources"] = {"requests": {"memory": draw(st.sampled_from(["16Mi", "64Mi", "65Mi", "30Gi"]))}}


def needs_device(draw, t):
    name = draw(st.sampled_from(["nvidia.com/gpu", "ephemeral-storage"]))
    t.work["resources"] = {"limits": {name: draw(st.sampled_from(["1", "2", "1Gi"] if name[0] == "e" else ["1", "2"]))}}


def has_helper(draw, t):
    image = draw(st.sampled_from(["runs:1-0", "runs:2-3", "forever", "oom:1", "absent/shipper"]))
    t.spec["containers"].append({"name": "side", "image": image, "resources": {"requests": memory(draw)}})
    t.late |= image in {"absent/shipper", "forever"}


def has_sidecar(draw, t):
    side = {"name": "native", "image": "forever", "restartPolicy": "Always", "resources": {"requests": memory(draw)}}
    t.spec["initContainers"] = [side]


def prepares(draw, t):
    image = draw(st.sampled_from(["runs:0.1-0", "runs:15-0", "runs:1-2", "absent/init"]))
    t.spec["initContainers"] = [{"name": "first", "image": image, "resources": {"requests": memory(draw)}}]
    t.late |= image != "runs:0.1-0"


def has_image(draw, t):
    t.work["image"] = draw(
        st.sampled_from(
            ["absent/work:1", f"slow/work:{t.chi}", "oom:2", "runs:2-7", "fills:2", "forever", f"work:{9 * t.chi}"]
        )
    )
    t.late = True


def limits_pod(draw, t):
    t.spec["activeDeadlineSeconds"] = draw(st.sampled_from([2, 20, 86400]))
    t.late |= t.spec["activeDeadlineSeconds"] != 86400


def is_enlarged(draw, t):
    t.plugins.append(limit_range(**amounts(draw)))


def is_injected(draw, t):
    proxy = {
        "name": "proxy",
        "image": draw(st.sampled_from(["runs:1-0", "forever"])),
        "resources": {"requests": amounts(draw)},
    }
    t.plugins.append(injects(proxy, at=draw(st.sampled_from([0, None]))))
    t.late |= proxy["image"] == "forever"


def has_overhead(draw, t):
    t.plugins.append(overhead(**amounts(draw)))


CHANGES = (
    selects, requires, prefers, tolerates, names_node, takes_port, repels, waits_for_gate, has_scheduler, needs_memory,
    needs_device, has_helper, has_sidecar, prepares, has_image, limits_pod, is_enlarged, is_injected, has_overhead,
)  # fmt: skip


@st.composite
def misfits(draw, chi):
    """Draw a template with one change, sometimes two."""
    template = Template(chi)
    for change in draw(st.lists(st.sampled_from(CHANGES), min_size=1, max_size=2, unique=True)):
        change(draw, template)
    return template
