"""Work that goes wrong in every way at once, side by side on one pool: it costs no unit and no promise.

What failed by itself and what somebody did to it is told apart: jobs whose pods are deleted or evicted have no retry.
"""

import asyncio
import json

from live import covers, eventually, note, version

HANGS = """
import os, time
from punctual import worker

done = 0
for unit in worker.units():
    if done == 5 and os.environ["PUNCTUAL_ATTEMPT"] == "1":
        time.sleep(3600)
    time.sleep(float(os.environ["PAUSE"]))
    done += 1
worker.result(str(done))
"""
"""Stands still in the middle of its first attempt, without using CPU."""

SLOWS = """
import os, time
from punctual import worker

first = os.environ["PUNCTUAL_ATTEMPT"] == "1"
done = 0
for unit in worker.units():
    time.sleep(2 if first and done >= 5 else float(os.environ["PAUSE"]))
    done += 1
worker.result(str(done))
"""
"""Is still at work, however long a call takes that ends its first attempt."""

CRASHES = """
import sys

print("reads 17 lines")
sys.exit("line 18: no such protein")
"""
"""Tells on its standard streams why it ends, as most programs do."""

DEAF = """
import os, time
from pathlib import Path

begin, end = int(os.environ["PUNCTUAL_BEGIN"]), int(os.environ["PUNCTUAL_END"])
folder = Path(os.environ["PUNCTUAL_DIR"])
for unit in range(begin, end):
    if "STANDS" in os.environ and unit == begin + 5 and os.environ["PUNCTUAL_ATTEMPT"] == "1":
        time.sleep(3600)
    time.sleep(float(os.environ["PAUSE"]))
    (folder / "draft").write_text(str(unit + 1 - begin))
    (folder / "draft").replace(folder / "progress")
Path("/dev/termination-log").write_text(str(end - begin))
"""
"""Reports what it has done, but hears nothing: neither offers nor SIGTERM. With STANDS its first attempt stands still
halfway, until something ends it."""

MEEK = """
import os, time
from pathlib import Path

begin, end = int(os.environ["PUNCTUAL_BEGIN"]), int(os.environ["PUNCTUAL_END"])
folder = Path(os.environ["PUNCTUAL_DIR"])

def say(name, number):
    (folder / "draft").write_text(str(number))
    (folder / "draft").replace(folder / name)

unit = begin
while unit < end:
    time.sleep(float(os.environ["PAUSE"]))
    unit += 1
    say("progress", unit - begin)
    offer = Path("/etc/punctual/end").read_text() if Path("/etc/punctual/end").exists() else ""
    if offer and int(offer) < end:
        end = max(begin, unit - 2)
        say("end", end)
        time.sleep(3)
Path("/dev/termination-log").write_text(str(end - begin))
"""
"""Answers an offer with less than it was offered, and even less than it has done."""

FILLS = """
import os
from pathlib import Path
from punctual import worker

limit = int(os.environ["PUNCTUAL_RESULT_LIMIT"])
size = limit + int(os.environ.get("BEYOND", "0"))
list(worker.units())
if size > limit:  # as a program in any language may
    Path("/dev/termination-log").write_text("x" * size)
    raise SystemExit(0)
try:
    worker.result("x" * (limit + 1))
except worker.WorkerError:
    worker.result("y" * (limit - 4) + "éé")
"""
"""Leaves the largest result that its pod may have, or BEYOND bytes more."""

LENGTHS = 'cd "$PUNCTUAL_RESULTS"; for r in *; do echo $r $(wc -c <$r) $(tail -c 4 $r); done >/dev/termination-log'
"""Tells of each result how long it is and how it ends."""

QUICK = {"deadline": "4m", "cost": {"perUnit": "300ms", "startup": "3s"}, "pause": 0.2, "reduce": "5s"}
ONE = {"processors": {"max": 1}}
LIE = {"deadline": "4m", "cost": {"perUnit": "50ms", "startup": "2s"}, "pause": 0.5, "reduce": "5s"}


async def test_work_is_killed_hangs_cannot_start_is_evicted_deleted_or_does_not_listen(cluster, space):
    await space.apply(
        space.manifest("killed", units=100, program=SLOWS, chunkRetries=1, **QUICK, **ONE),
        space.manifest("crashes", units=100, program=CRASHES, chunkRetries=0, **QUICK, **ONE),
        space.manifest("hangs", units=100, program=HANGS, stallTimeout="8s", **QUICK, **ONE),
        without_image(space),
        space.manifest("evicted", units=100, program=SLOWS, chunkRetries=0, **QUICK, **ONE),
        standing(space.manifest("removed", units=100, program=DEAF, chunkRetries=0, **QUICK, **ONE)),
        space.manifest("deaf", units=40, program=DEAF, **LIE),
        space.manifest("meek", units=40, program=MEEK, **LIE),
        of_five("full", space),
        of_five("cut", space, beyond=1),
        of_five("torn", space, beyond=5000),
    )
    stories = (killed, crashes, hangs, imageless, evicted, removed, deaf, meek, full, cut)
    ends = await asyncio.gather(*(story(space) for story in stories), return_exceptions=True)
    if failures := [end for end in ends if isinstance(end, Exception)]:
        raise ExceptionGroup("not as told", failures)


def standing(job):
    job["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "STANDS", "value": ""})
    return job


def without_image(space):
    job = space.manifest("imageless", units=100, chunkRetries=0, imagePullTimeout="30s", **QUICK, **ONE)
    (main,) = job["spec"]["template"]["spec"]["containers"]
    main |= {"image": "punctual.invalid/none:1", "imagePullPolicy": "IfNotPresent"}
    return job


def of_five(name, space, *, beyond=0):
    """Return a job whose pod has five containers, one of which leaves a result."""
    job = space.manifest(name, units=1, program=FILLS, chunkRetries=0, **QUICK, **ONE)
    containers = job["spec"]["template"]["spec"]["containers"]
    containers[0]["env"].append({"name": "BEYOND", "value": str(beyond)})
    more = {"image": space.cluster.image, "command": ["true"]}
    containers += [{"name": f"side-{n}", **more} for n in range(4)]
    (join,) = job["spec"]["reduce"]["template"]["spec"]["containers"]
    join["command"] = ["sh", "-ec", LENGTHS]
    return job


async def halfway(space, name, count=5):
    """Wait until a job's only chunk has done something; return its pod."""
    pod, *_ = await space.running(name)
    await eventually(lambda: space.status(name)["units"]["done"] >= count)
    return pod


async def kept(space, name):
    """Wait for a job's end: it is in time, and each unit was accounted once."""
    status = await space.end(name)
    assert space.is_so(name, "Completed", "Completed"), status["conditions"]
    assert status["finishTime"] <= status["promise"]["deadline"]
    units = status["units"]["total"]
    assert status["completed"] == [{"begin": 0, "end": units}]
    found = space.ranges(name)
    assert covers([r for r, _ in found], units)
    assert all(int(said) == end - begin for (begin, end), said in found)
    return status


async def killed(space):
    """A process that is killed counts as its own failure, and is done again."""
    pod = await halfway(space, "killed")
    space.cluster.signal(pod, "KILL")
    await kept(space, "killed")
    (failed,) = space.pods_of("killed", phase="Failed")
    assert failed["metadata"]["uid"] == pod["metadata"]["uid"]
    assert "exit code 137" in (await space.events("killed"))["ChunkFailed"]


async def crashes(space):
    """What a failed chunk wrote last can be read in the job's event and condition, without a look at any pod."""
    await space.end("crashes")
    assert space.is_so("crashes", "Failed", "ChunkFailed"), space.status("crashes")["conditions"]
    (pod,) = space.pods_of("crashes")
    (main,) = pod["spec"]["containers"]
    assert main["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert "line 18: no such protein" in (await space.events("crashes"))["ChunkFailed"]


async def hangs(space):
    """A chunk that neither goes on nor uses CPU is ended after stallTimeout, and done again."""
    pod = await halfway(space, "hangs", 4)
    name = pod["metadata"]["name"]
    await eventually(lambda: name in space.gone)
    await kept(space, "hangs")
    assert "neither progress nor CPU use" in (await space.events("hangs"))["Stalled"]
    assert {note(p, "attempt") for p in space.pods_of("hangs")} == {1, 2}


async def imageless(space):
    """An image that does not exist is waited for, by one pod after the other, and then counts as failed work."""
    await eventually(lambda: space.is_so("imageless", "Failed", "ChunkFailed"), within=180)
    assert "cannot start: " in space.condition("imageless", "Failed")["message"]
    assert "cannot start: " in (await space.events("imageless"))["ImageUnavailable"]
    assert len(space.pods_of("imageless")) > 1
    await eventually(lambda: not space.pods_of("imageless", gone=False))


async def evicted(space):
    """A pod evicted through the API is nobody's failure: without a single retry the job goes on."""
    pod = await halfway(space, "evicted")
    meta = {"name": pod["metadata"]["name"], "namespace": space.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    path = f"/api/v1/namespaces/{space.namespace}/pods/{meta['name']}/eviction"
    await space.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    await kept(space, "evicted")
    assert "is being evicted" in (await space.events("evicted"))["CapacityLost"]
    assert {note(p, "attempt") for p in space.pods_of("evicted")} == {1, 2}


async def removed(space):
    """A pod deleted by hand is replaced at once, though it goes on for its grace period, which is cut short."""
    pod = await halfway(space, "removed")
    name = pod["metadata"]["name"]
    await space.kubectl("delete", "pod", name, "--wait=false")
    await eventually(lambda: name in space.gone)
    assert {life["metadata"].get("deletionGracePeriodSeconds") for life in space.lives[name]} >= {None, 30, 2}
    await kept(space, "removed")
    (again,) = (p["metadata"]["name"] for p in space.pods_of("removed") if p["metadata"]["name"] != name)
    assert space.born[again] < version(space.pods[name])
    assert "is being deleted" in (await space.events("removed"))["CapacityLost"]


async def deaf(space):
    """A worker that ignores what it is offered is waited for and accounted whole."""
    pod, *_ = await space.running("deaf")
    name = pod["metadata"]["name"]
    await eventually(lambda: "punctual.dev/offered-end" in space.pods[name]["metadata"]["annotations"])
    await kept(space, "deaf")
    assert [p["metadata"]["name"] for p in space.pods_of("deaf")] == [name]


async def meek(space):
    """A worker that answers with less than it was offered is believed; the rest is done elsewhere."""
    pod, *_ = await space.running("meek")
    name = pod["metadata"]["name"]
    await kept(space, "meek")
    offered = note(space.pods[name], "offered-end")
    (first, _), *others = space.ranges("meek")
    assert first[1] < offered
    assert others


async def full(space):
    """Of five containers the kubelet passes on 2457 bytes each: a result of one byte less comes whole."""
    status = await space.end("full")
    assert space.is_so("full", "Completed", "Completed"), status["conditions"]
    assert space.result("full") == "0-1 2456 \u00e9\u00e9"


async def cut(space):
    """Where a program leaves more, if only a byte, its chunk fails with the reason, and nothing of it is kept."""
    for name in ("cut", "torn"):
        await space.end(name)
        assert space.is_so(name, "Failed", "ResultCut"), space.status(name)["conditions"]
        assert "passes on 2457 bytes" in space.condition(name, "Failed")["message"]
        (pod,) = space.pods_of(name)
        first = next(s for s in pod["status"]["containerStatuses"] if s["name"] == "main")
        assert len(first["state"]["terminated"]["message"]) == 2457
        assert not space.status(name).get("completed")
    kept = await space.kubectl("get", "configmaps", "-o", "json")
    assert "x" * 100 not in kept  # three may stand in the certificate that each namespace has
