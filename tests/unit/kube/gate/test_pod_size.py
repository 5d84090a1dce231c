"""Pods that request more than a processor: refused before a promise, unless the work can give way."""

import asyncio
import copy
from types import SimpleNamespace

import pytest
from clocks import NO_CLIENT, clock

from punctual import reasons
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.requests import requested
from punctual.kube.gate.admission_gate import AdmissionGate
from punctual.kube.known.directory import Directory
from punctual.kube.known.translate import to_pool_spec
from punctual.scheduling.model.events import NodeObserved, PodObserved
from punctual.scheduling.model.resources import Resources

CREATED = "2030-01-01T00:00:00Z"
MI = 2**20
SIDECAR = {"name": "shipper", "image": "img", "restartPolicy": "Always"}


class Server:
    """An API server with admission plugins: each changes the pod that it is asked about."""

    def __init__(self, *plugins):
        self.plugins = plugins
        self.clock = clock()
        self.asked = []

    async def create(self, _path, body, **_):
        self.asked.append(body)
        answer = copy.deepcopy(body)
        for plugin in self.plugins:
            plugin(answer["spec"])
        return answer


def containers(spec):
    return [*spec["containers"], *(spec.get("initContainers") or ())]


def limit_range(**amounts):
    """Return the plugin of a LimitRange with default requests."""

    def plugin(spec):
        for container in containers(spec):
            requests = container.setdefault("resources", {}).setdefault("requests", {})
            for name, amount in amounts.items():
                if name not in (container["resources"].get("limits") or {}):
                    requests.setdefault(name, amount)

    return plugin


def injects(**amounts):
    def plugin(spec):
        spec["containers"].insert(0, {"name": "proxy", "image": "p", "resources": {"requests": amounts}})

    return plugin


def injects_first(**amounts):
    """Return the plugin that puts a native sidecar before all else."""

    def plugin(spec):
        proxy = {**SIDECAR, "name": "proxy", "resources": {"requests": amounts}}
        spec["initContainers"] = [proxy, *(spec.get("initContainers") or ())]

    return plugin


def overhead(**amounts):
    return lambda spec: spec.update(overhead=amounts)


def drops_pod_level(spec):
    spec.pop("resources", None)


class Desk:
    def __init__(self, *plugins, cpu="100m", memory="64Mi", resources=None, **pool):
        self.server = Server(*plugins)
        self.directory = Directory()
        meta = {"name": "main", "uid": "p1", "generation": 1, "creationTimestamp": CREATED}
        spec = {"nodeSelector": {}, "processor": {"cpu": cpu, "memory": memory, "resources": resources}, **pool}
        self.directory.pools.observe({"metadata": meta, "spec": spec})
        self.nodes = []
        self.pods = []
        caches = Caches(NO_CLIENT)
        caches.directory, caches.pods = self.directory, SimpleNamespace(of_job=lambda _: self.pods)
        caches.inventory = SimpleNamespace(events_of=lambda _: self.nodes)
        self.gate = AdmissionGate(self.server, caches, lambda _: None)

    async def refusal(self, job):
        known = self.directory.jobs.observe(job)
        assert self.gate.job(known, decided=False) is None
        async with asyncio.timeout(30):
            while self.gate._trials._questions:  # noqa: ASYNC110  theirs
                await asyncio.sleep(0)
        answer = self.gate.job(known, decided=False)
        await self.gate.close()
        return answer.refusal

    def processor(self):
        return to_pool_spec(self.directory.pools.named("main"))

    def last(self):
        """Return the request and limit of the work as it was tried last."""
        resources = self.server.asked[-1]["spec"]["containers"][0]["resources"]
        return resources["requests"], resources["limits"]


def job(*extra, init=(), work=None, **spec):
    main = {"name": "main", "image": "img"} | ({"resources": work} if work else {})
    template = {"containers": [main, *extra]} | ({"initContainers": list(init)} if init else {})
    template |= spec.pop("pod", {})
    meta = {"name": "j1", "namespace": "ns", "uid": "j1", "generation": 1, "creationTimestamp": CREATED}
    asked = {"pool": "main", "units": 5, "deadline": "1h", "cost": {"perUnit": "1s"}}
    return {"metadata": meta, "spec": {**asked, "template": {"spec": template}, **spec}}


def beside(name, **requests):
    return {"name": name, "image": "img", "resources": {"requests": requests}}


@pytest.mark.parametrize(
    ("plugins", "asked", "cpu", "memory"),
    [
        pytest.param([], job(), "100m", "64Mi", id="nothing beside"),
        pytest.param([], job(beside("log", memory="16Mi")), "100m", "48Mi", id="a container of the template"),
        pytest.param([], job(init=[SIDECAR | beside("log", memory="16Mi")]), "100m", "48Mi", id="a sidecar of it"),
        pytest.param([limit_range(cpu="20m")], job(beside("log")), "80m", "64Mi", id="a default of a LimitRange"),
        pytest.param([injects(cpu="30m", memory="8Mi")], job(), "70m", "56Mi", id="an injected container"),
        pytest.param([overhead(cpu="10m", memory="4Mi")], job(), "90m", "60Mi", id="overhead"),
        pytest.param(
            [injects_first(cpu="25m")],
            job(input={"http": {"url": "http://a"}}),
            "75m",
            "64Mi",
            id="before the input step",
        ),
    ],
)
async def test_the_work_gives_way_to_what_its_pod_requests_beside_it(plugins, asked, cpu, memory):
    desk = Desk(*plugins)
    assert await desk.refusal(asked) is None
    assert desk.last() == ({"cpu": cpu, "memory": memory}, {"cpu": "100m", "memory": "64Mi"})
    others = desk.gate.others("j1", "Chunk", asked["spec"]["template"], desk.processor())
    assert (others is None) == (not plugins)
    if others:
        assert desk.processor().share - others == Resources(float(cpu[:-1]) / 1000, int(memory[:-2]) * MI)
        desk.gate.forget("j1")
        assert desk.gate.others("j1", "Chunk", asked["spec"]["template"], desk.processor()) is None


GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("plugins", "asked", "amount"),
    [
        pytest.param([], job(), "2", id="nothing named"),
        pytest.param([], job(work={"limits": {GPU: 2}}), 2, id="the same amount"),
        pytest.param([], job(beside("log", **{GPU: 1})), "1", id="one in a container of the template"),
        pytest.param([], job(init=[SIDECAR | beside("log", **{GPU: 2})]), "0", id="all in a sidecar of it"),
        pytest.param([], job(init=[beside("first", **{GPU: 2})]), "2", id="all in an init container, before the work"),
        pytest.param([limit_range(**{GPU: 1})], job(beside("log")), "1", id="one by default of a LimitRange"),
        pytest.param([limit_range(**{GPU: 5})], job(), "2", id="a default for the work"),
        pytest.param([], job(input={"http": {"url": "http://a"}}), "2", id="with an input step"),
    ],
)
async def test_the_work_gets_what_the_other_containers_leave_of_a_processors_devices(plugins, asked, amount):
    desk = Desk(*plugins, resources={GPU: 2})
    assert await desk.refusal(asked) is None
    requests, limits = desk.last()
    assert limits == {"cpu": "100m", "memory": "64Mi", GPU: amount}
    assert requests.get(GPU, amount) == amount
    spec = copy.deepcopy(desk.server.asked[-1]["spec"])
    for plugin in plugins:
        plugin(spec)
    assert requested(spec)[GPU] == 2


OF_EXTENDED = (
    "leave it out of the template, and the work gets what the other containers leave of a processor, or name the same "
    "amount as the pool's processor.resources; defaults of a LimitRange and injected containers count"
)


@pytest.mark.parametrize(
    ("plugins", "asked", "said"),
    [
        pytest.param([], job(work={"limits": {GPU: 3}}), "request 3 example.com/gpu (main 3)", id="more"),
        pytest.param([], job(work={"limits": {GPU: 1}}), "request 1 example.com/gpu (main 1)", id="less"),
        pytest.param(
            [], job(work={"limits": {GPU: 0}}), "request 0 example.com/gpu (no container names it)", id="none"
        ),
        pytest.param(
            [],
            job(beside("log", **{GPU: 1}), work={"limits": {GPU: 2}}),
            "request 3 example.com/gpu (main 2, log 1)",
            id="more, with a container of the template",
        ),
        pytest.param(
            [],
            job(init=[beside("first", **{GPU: 4})]),
            "request 4 example.com/gpu (main 2, first at first 4)",
            id="more at first",
        ),
        pytest.param(
            [limit_range(**{GPU: 3})],
            job(init=[SIDECAR]),
            "request 3 example.com/gpu (shipper 3)",
            id="more by default of a LimitRange",
        ),
    ],
)
async def test_pods_with_another_amount_of_a_device_than_a_processor_are_refused_with_both(plugins, asked, said):
    text = f"its pods {said}; a processor of pool main has 2: {OF_EXTENDED}"
    assert await Desk(*plugins, resources={GPU: 2}).refusal(asked) == (reasons.POD_TOO_LARGE, text)


async def test_the_reduce_pod_has_the_devices_of_a_processor_too():
    reduce = {"duration": "10s", "template": job(work={"limits": {GPU: 1}})["spec"]["template"]}
    reason, text = await Desk(resources={GPU: 2}).refusal(job(reduce=reduce))
    assert reason == reasons.POD_TOO_LARGE
    assert text.startswith("its reduce pod requests 1 example.com/gpu (main 1); a processor of pool main has 2")


async def test_a_guest_gets_none_of_the_devices_and_is_refused_if_it_names_them():
    asked = {**job(), "spec": {**job()["spec"], "class": "Guest", "deadline": None, "cost": None}}
    desk = Desk(resources={GPU: 2})
    assert await desk.refusal(asked) is None
    assert GPU not in desk.last()[0] | desk.last()[1]
    asked["spec"]["template"] = job(work={"limits": {GPU: 1}})["spec"]["template"]
    reason, text = await Desk(resources={GPU: 2}).refusal(asked)
    assert reason == reasons.POD_TOO_LARGE
    assert text.startswith("its pods request 1 example.com/gpu, which is a part of the processors of pool main; guests")


@pytest.mark.parametrize(("work", "needed"), [(None, ()), ({"limits": {GPU: 2}}, ((GPU, 2),))])
async def test_an_edit_of_the_pool_may_take_devices_from_pods_that_do_not_name_them(work, needed):
    desk, asked = Desk(resources={GPU: 2}), job(work=work)
    assert await desk.refusal(asked) is None
    assert desk.gate.job(desk.directory.jobs.get("j1"), decided=True).rules.devices == needed


CPU = (
    "raise the pool's processor.cpu, or lower what is requested beside the work: defaults of a LimitRange, injected "
    "containers and the overhead of a RuntimeClass count"
)
MEMORY = (
    "raise the pool's processor.memory, or lower the memory of the template; defaults of a LimitRange, injected "
    "containers and the overhead of a RuntimeClass count"
)


@pytest.mark.parametrize(
    ("plugins", "asked", "said"),
    [
        pytest.param(
            [limit_range(cpu="100m")],
            job(init=[SIDECAR]),
            f"its pods request 200m CPU (main 100m, shipper 100m); a processor of pool main has 100m: {CPU}",
            id="a default as large as a processor",
        ),
        pytest.param(
            [],
            job(work={"requests": {"memory": "30Gi"}}),
            f"its pods request 30Gi memory (main 30Gi); a processor of pool main has 64Mi: {MEMORY}",
            id="memory of the work",
        ),
        pytest.param(
            [],
            job(work={"limits": {"memory": "64Mi"}}, pod={"initContainers": [SIDECAR | beside("log", memory="16Mi")]}),
            f"its pods request 80Mi memory (main 64Mi, log 16Mi); a processor of pool main has 64Mi: {MEMORY}",
            id="memory of the work and of a sidecar",
        ),
        pytest.param(
            [],
            job(beside("log", memory="64Mi")),
            f"its pods request 65Mi memory (main 1Mi, log 64Mi); a processor of pool main has 64Mi: {MEMORY}",
            id="nothing is left for the work",
        ),
        pytest.param(
            [],
            job(pod={"resources": {"requests": {"memory": "160Mi"}, "limits": {"memory": "300Mi"}}}),
            f"its pods request 160Mi memory (the pod as a whole 160Mi); a processor of pool main has 64Mi: {MEMORY}",
            id="memory of the pod as a whole",
        ),
        pytest.param(
            [],
            job(reduce={"duration": "1s", "template": job(work={"requests": {"memory": "1Gi"}})["spec"]["template"]}),
            f"its reduce pod requests 1Gi memory (main 1Gi); a processor of pool main has 64Mi: {MEMORY}",
            id="the reduce pod",
        ),
        pytest.param(
            [lambda spec: containers(spec)[-1]["resources"]["requests"].update(cpu="150m")],
            job(),
            f"its pods request 150m CPU (main 150m); a processor of pool main has 100m: {CPU}",
            id="a webhook that raises the work itself",
        ),
    ],
)
async def test_what_does_not_fit_a_processor_is_refused_with_both_numbers(plugins, asked, said):
    assert await Desk(*plugins).refusal(asked) == (reasons.POD_TOO_LARGE, said)


async def test_where_pods_share_processors_the_measure_is_a_pods_share():
    desk = Desk(injects(cpu="50m"), admission="Utilization")
    reason, said = await desk.refusal(job())
    assert reason == reasons.POD_TOO_LARGE
    assert "its pods request 100m CPU (proxy 50m, main 50m); a pod's share of a processor of pool main has 50m" in said


async def test_memory_of_the_pod_as_a_whole_is_no_containers_limit():
    desk = Desk()
    asked = job(pod={"resources": {"requests": {"memory": "32Mi"}, "limits": {"memory": "64Mi"}}})
    assert await desk.refusal(asked) is None
    assert desk.last() == ({"cpu": "100m"}, {"cpu": "100m"})
    assert requested(desk.server.asked[0]["spec"]) == Resources(0.1, 32 * MI)


async def test_a_cluster_that_drops_resources_of_the_pod_as_a_whole_is_named():
    reason, said = await Desk(drops_pod_level).refusal(job(pod={"resources": {"limits": {"memory": "64Mi"}}}))
    assert reason == reasons.POD_REFUSED
    assert "this cluster ignores spec.template.spec.resources" in said


def node(name, processors, **others):
    return NodeObserved(
        name=name,
        ready=True,
        cpu=processors / 10,
        memory=2**40,
        others=tuple(sorted((k, v) for k, v in others.items())),
    )


@pytest.mark.parametrize(
    ("nodes", "refused"),
    [
        pytest.param([node("n1", 1, gpu=1)], "", id="one for its processor"),
        pytest.param([node("n1", 2, gpu=1), node("n2", 3), node("n3", 2, gpu=2)], "", id="one node has enough"),
        pytest.param([node("n1", 2, gpu=1)], "n1 has 1 for 2", id="one for two processors"),
        pytest.param([node("n1", 2)], "n1 has 0 for 2", id="none"),
        pytest.param([], "", id="no node: the Pool says so"),
    ],
)
async def test_what_a_processor_does_not_name_is_measured_by_what_a_node_has_for_each(nodes, refused):
    desk = Desk()
    desk.nodes = nodes
    found = await desk.refusal(job(work={"limits": {"gpu": 1}}))
    if not refused:
        assert found is None
    else:
        said = f"its pods request gpu 1; no node of pool main has that for each of its processors: {refused}."
        assert found[0] == reasons.POD_TOO_LARGE
        assert found[1].startswith(said)


async def test_the_size_in_force_is_the_measure_not_the_one_that_is_asked_for():
    desk = Desk(cpu="1")
    small = Desk().processor()
    desk.directory.pools["p1"].term.spec = small
    assert await desk.refusal(job(beside("log"), work={"limits": {"memory": "1Gi"}})) is not None
    assert desk.server.asked[-1]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "100m"


async def test_a_later_leader_learns_from_the_first_pod_that_is_too_large_what_is_added():
    desk = Desk()
    template = job(beside("log", memory="16Mi"))["spec"]["template"]
    pod = PodObserved("a", "a", "ns", "j1", "Chunk", 0, 1, 0, "n1", "Running", 0.0, requests=Resources(0.12, 64 * MI))
    assert desk.gate.others("j1", "Chunk", template, desk.processor()) is None
    desk.pods = [pod._replace(requests=Resources()), pod]
    assert desk.gate.others("j1", "Reduce", template, desk.processor()) is None
    assert desk.gate.others("j1", "Pilot", template, desk.processor()) == Resources(0.02, 16 * MI)
    desk.pods = []
    assert desk.gate.others("j1", "Chunk", template, desk.processor()) == Resources(0.02, 16 * MI)
