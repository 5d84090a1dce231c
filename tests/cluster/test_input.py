"""Transfer-bound jobs on a pool whose inputs come over one port: a table on a slow server that wants credentials.

What is learned of transfers is held to what the server itself saw of them, however busy the machine is. And jobs on a
log that grows while they run.
"""

import base64
import json
import runpy
from itertools import count, pairwise
from typing import NamedTuple

import pytest
import yaml
from live import POOL, ROOT, eventually, lend

from punctual.fetch import CHANGED
from punctual.notation.duration import parse_duration

UNITS, LINES, RATE, OPENING = 60, 60_000, 125_000, 0.2
BY_HAND = {"perUnit": "400ms", "transferPerUnit": "140ms", "transferSetup": "4s", "startup": "3s"}
"""More than it takes; and a transfer is longer than another may be late unmoved: none overtakes the one before."""
TABLE = len(runpy.run_path(str(ROOT / "examples/readings/source.py"))["table"](LINES))
"""Bytes of it."""
THREE = {"min": 3, "max": 3}

LOG = """
import os, re, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

early, late = (b"".join(b"line %06d\\n" % n for n in range(count)) for count in (1000, 1500))
shared, lock = [], threading.Lock()

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        first, last = map(int, re.fullmatch(r"bytes=(\\d+)-(\\d+)", self.headers["Range"]).groups())
        with lock:
            grown = os.path.exists("/tmp/grown") if self.path == "/told" else bool(shared)
            if self.path == "/shared" and last > 0:
                shared.append(first)  # whoever asks next finds more lines
        data = late if grown else early
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last + 1 - first))
        if self.path == "/told":
            self.send_header("ETag", f'"{len(data)}"')
        self.end_headers()
        self.wfile.write(data[first : last + 1])

ThreadingHTTPServer(("", 8080), Answer).serve_forever()
"""
"""A server of two logs of 1,000 lines: to one it adds 500 when told to, to the other as the first share is sent."""
EARLY, LATE = 12_000, 18_000
"""Bytes of them."""
WAITS = """
import os, sys, time
from punctual import worker

while not os.path.exists(os.environ["PUNCTUAL_DIR"] + "/go"):
    time.sleep(0.1)
sys.exit(1)
"""
"""A worker that fails as soon as it is told to."""


@pytest.fixture
async def own(cluster, client, space):
    """A pool of the test's own on one of the nodes, over one port."""
    async with lend(cluster, client, cluster.nodes[-1], network="OnePort") as name:
        yield name


async def test_inputs_come_one_after_the_other_in_time_and_what_they_took_is_learned(cluster, client, space, own):
    secret = await serve(space)
    await space.apply(locked(space), profile(space))
    job = space.example("readings", pool=own, units=UNITS, deadline="4m", processors=THREE, profile="table")
    del job["spec"]["cost"]
    job["spec"]["reduce"]["duration"] = "8s"
    await space.apply(job)
    await eventually(lambda: space.is_so("readings", "Admitted", "Feasible"))  # also where its profile is seen later
    await space.apply(another(job, "again", deadline="6m"))
    await space.end("readings")
    # all three were there as the first was given its turn
    first = next(chunks for chunks in planned(space) if turns(chunks))
    assert len(first) == 3
    assert len(turns(first)) == 1

    for name in ("readings", "again"):
        status = await space.end(name)
        assert space.is_so(name, "Completed", "Completed"), status["conditions"]
        assert status["finishTime"] <= status["promise"]["deadline"]
        assert (status["input"]["transfers"], status["input"]["units"]) == (3, UNITS)

    # the server saw one transfer at a time, in the order of the units, and sent each byte once for each job: but for
    # the looks where the last line of a share ends
    seen = transfers(await answers(space))
    assert all(after.asked >= before.over for before, after in pairwise(seen)), seen
    assert len(seen) == 6
    shares = [t.begin for t in seen]
    assert shares == sorted(shares[:3]) + sorted(shares[3:])
    assert 2 * TABLE <= sum(t.bytes for t in seen) <= 2 * TABLE + 6 * 17_000
    assert space.status("readings")["input"]["bytes"] == space.status("again")["input"]["bytes"] == TABLE

    # and each line was counted once
    lines = (await space.kubectl("logs", reduce_pod(space))).splitlines()
    assert len(lines) == 10
    assert sum(int(line.split()[1]) for line in lines) == LINES

    await learned(space, job)
    await untold(space, secret)


async def test_a_job_whose_log_grows_fails_instead_of_losing_lines(space):
    await space.apply(*log(space))
    await eventually(lambda: ready(space.pods.get("log")))
    usual = {"deadline": "4m", "cost": {"perUnit": "300ms", "startup": "3s"}, "pause": 0.1, "chunkRetries": 5}
    told = space.manifest("told", units=10, program=WAITS, stallTimeout="5m", processors={"max": 1}, **usual)
    told["spec"]["input"] = {"http": {"url": "http://log/told"}, "cut": "Lines"}
    shared = space.manifest("shared", units=10, reduce="5s", processors={"min": 2, "max": 2}, **usual)
    shared["spec"]["input"] = {"http": {"url": "http://log/shared"}, "cut": "Lines"}
    await space.apply(told, shared)

    # another attempt at a chunk is told what the first has read: it ends before it works
    (first,) = await space.running("told")
    seen = await eventually(lambda: space.status("told").get("input"))
    assert (seen["size"], seen["validator"]) == (EARLY, f'"{EARLY}"')
    await space.kubectl("exec", "log", "--", "touch", "/tmp/grown")
    await space.kubectl("exec", first["metadata"]["name"], "--", "sh", "-c", 'touch "$PUNCTUAL_DIR/go"')
    status = await space.end("told")
    assert space.is_so("told", "Failed", "InputChanged"), status["conditions"]
    why = f'it is {LATE} bytes, validator "{LATE}" now; the job began with {EARLY} bytes, validator "{EARLY}"'
    assert why in space.condition("told", "Failed")["message"]
    _, last = space.pods_of("told")
    (step,) = last["status"]["initContainerStatuses"]
    assert step["state"]["terminated"]["exitCode"] == CHANGED
    assert "waiting" in last["status"]["containerStatuses"][0]["state"]

    # of two that fetch at once one finds more lines than the other: no line of both together is counted
    status = await space.end("shared")
    assert space.is_so("shared", "Failed", "InputChanged"), status["conditions"]
    assert status["units"]["done"] < 10
    assert space.pods_of("shared", "Reduce") == []


def log(space):
    """Return the pod that serves the logs, and its service."""
    server = {
        "name": "main",
        "image": space.cluster.image,
        "command": ["python3", "-c", LOG],
        "resources": {"requests": {"cpu": "10m"}},
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }
    meta = {"name": "log", "namespace": space.namespace}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [server]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "labels": {"app": "log"}}, "spec": spec}
    ports = {"selector": {"app": "log"}, "ports": [{"port": 80, "targetPort": 8080}]}
    return pod, {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": ports}


async def serve(space):
    """Start the example's server, and wait until it is there; return its secret."""
    text = (ROOT / "examples/readings/source.yaml").read_text().replace("punctual:dev", space.cluster.image)
    secret, pod, service = yaml.safe_load_all(text)
    command = pod["spec"]["containers"][0]["command"]
    command[2:] = [f"--lines={LINES}", f"--rate={RATE}", f"--opening={OPENING}"]
    await space.apply(secret, pod, service)
    await eventually(lambda: ready(space.pods.get("readings")))
    return secret["stringData"]["authorization"]


def ready(pod):
    conditions = pod["status"].get("conditions", ()) if pod else ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def profile(space):
    meta = {"name": "table", "namespace": space.namespace}
    return {"apiVersion": "punctual.dev/v1alpha1", "kind": "Profile", "metadata": meta, "spec": BY_HAND}


def another(job, name, **spec):
    """Return a job on the same input, without a reduce."""
    spec = {field: value for field, value in job["spec"].items() if field != "reduce"} | spec
    return {**job, "metadata": {**job["metadata"], "name": name}, "spec": spec}


def locked(space):
    """Return a job, on the pool that all share, whose Secret is not there."""
    key = {"name": "nowhere", "key": "authorization"}
    http = {
        "url": "http://readings/",
        "allowInsecure": True,
        "headers": [{"name": "Authorization", "secretKeyRef": key}],
    }
    cost = {"perUnit": "1s", "startup": "2s"}
    return space.manifest("locked", pool=POOL, units=1, deadline="5m", cost=cost, chunkRetries=0, input={"http": http})


def planned(space):
    return [status.get("chunks", ()) for _, status in space.written("readings")]


def turns(chunks):
    return [c for c in chunks if "turnTime" in c]


def reduce_pod(space):
    (pod,) = space.pods_of("readings", "Reduce")
    return pod["metadata"]["name"]


class Answer(NamedTuple):
    """What the server says of a request: when it came, when its first and last part were ready, and which bytes."""

    asked: float
    opened: float
    ended: float
    first: int
    last: int


class Transfer(NamedTuple):
    """What it says of a chunk's: when it asked for the size, got its first part, and the first of its last answer."""

    asked: float
    opened: float
    over: float
    begin: int
    bytes: int


async def answers(space):
    """Return what the server says that it sent, in order."""
    lines = (await space.kubectl("logs", "readings")).splitlines()
    told = ([float(n) for n in line.split()] for line in lines)
    return sorted(Answer(*times, int(first), int(last)) for *times, first, last in told)


def transfers(sent):
    """Put the answers together that one step got: it asks for the input's size first."""
    starts = [n for n, answer in enumerate(sent) if (answer.first, answer.last) == (0, 0)]
    found = []
    for begin, end in pairwise([*starts, len(sent)]):
        size, share, *rest = sent[begin:end]
        over = rest[-1].opened if rest else share.ended
        sent_for_it = sum(answer.last + 1 - answer.first for answer in (share, *rest))
        found.append(Transfer(size.asked, share.opened, over, share.first, sent_for_it))
    return found


async def learned(space, job):
    """What jobs are planned with is what the server saw: how long it sent a unit, and how long the link was idle."""
    await space.kubectl(
        "patch", "profile", "table", "--type=merge", "-p", '{"spec": {"transferPerUnit": null, "transferSetup": null}}'
    )
    by_hand, names = parse_duration(BY_HAND["transferPerUnit"]), (f"asks-{n}" for n in count())

    async def cost():
        name = next(names)
        await space.apply(another(job, name, deadline="1h", dryRun=True))
        assert (await space.answer(name))["reason"] == "DryRun", space.status(name)
        found = space.status(name)["cost"]
        return found if found["transferPerUnit"] != by_hand else None

    found = await eventually(cost, every=1.0)
    while not found["transferPerUnit"]:  # the ends of some were seen too late to tell anything
        more = f"after-{next(names)}"
        await space.apply(another(job, more, deadline="1h"))
        await space.end(more)
        found = await cost()
    seen = transfers(await answers(space))
    tau = sum(t.over - t.opened for t in seen) / sum(t.bytes / TABLE * UNITS for t in seen)
    assert tau >= 0.9 * TABLE / UNITS / RATE
    # half of it may wait in the sockets while a reader is slow
    assert 0.5 * tau <= found["transferPerUnit"] <= 2.0 * tau
    # what the server sees between two transfers is that the end of one was seen, and that the next one was opened: of
    # each transfer one in the gap behind it and one in the gap before, so together no more than the double of a gap
    idle = [after.opened - before.over for before, after in pairwise(seen)]
    assert min(idle) >= 2 * OPENING
    assert 0.5 * min(idle) <= found["transferSetup"] <= 2.0 * max(idle)


async def untold(space, secret):
    """The secret stands nowhere but where it was put; who has none is told what is missing."""
    found = await space.kubectl("get", "pods,dj,profiles,events,configmaps", "-o", "json")
    assert len(json.loads(found)["items"]) > 5
    assert secret not in found
    assert base64.b64encode(secret.encode()).decode() not in found
    await eventually(lambda: space.is_so("locked", "Failed", "ChunkFailed"))
    why = 'CreateContainerConfigError: secret "nowhere" not found (spec.input.http.headers)'
    assert why in space.condition("locked", "Failed")["message"]
