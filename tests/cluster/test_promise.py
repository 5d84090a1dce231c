"""A promise kept on real kubelets: from kubectl apply to the result, with what a user sees on the way."""

import re
import subprocess
import sys
from datetime import datetime

from live import ROOT, condition, container, covers, eventually, note

EXAMPLES = ROOT / "examples"
ALONE = {"primes": [sys.executable, EXAMPLES / "primes/primes.py"], "mertens": [EXAMPLES / "mertens/mertens.sh"]}


def alone(name, units, folder):
    """What one process finds that does all units by itself."""
    folder = folder / name
    folder.mkdir()
    environment = {
        "PATH": "/usr/bin:/bin",
        "PUNCTUAL_BEGIN": "0",
        "PUNCTUAL_END": str(units),
        "PUNCTUAL_TOTAL": str(units),
        "PUNCTUAL_DIR": str(folder),
        "PUNCTUAL_OFFER": str(folder / "offer"),
        "PUNCTUAL_TERMINATION_LOG": str(folder / "message"),
    }
    subprocess.run(ALONE[name], env=environment, check=True, capture_output=True)
    return (folder / "message").read_text().strip()


def columns(table):
    """The rows of what kubectl prints, by name."""
    head, *rows = table.splitlines()
    names = re.findall(r"\S+", head)
    starts = [head.index(name) for name in names]
    spans = list(zip(starts, [*starts[1:], None], strict=True))
    cells = [[row[a:b].strip() for a, b in spans] for row in rows]
    return {row[0]: dict(zip(names, row, strict=True)) for row in cells}


def moment(text):
    return datetime.fromisoformat(text).timestamp()


async def test_two_jobs_are_promised_capped_and_end_on_time_with_the_result_of_one_process(cluster, space, tmp_path):
    units = {"primes": 60, "mertens": 75}
    leader = (await eventually(cluster.leader))["metadata"]["name"]
    before = cluster.metrics(leader, 8080)
    applied = await space.apply(
        space.example("primes", units=60, deadline="45s", cost={"chi": "600ms", "thetaCp": "2s"}),
        space.example("mertens", units=75, deadline="35s", cost={"chi": "300ms", "thetaCp": "1s"}),
    )
    for name in units:
        assert (await space.answer(name))["reason"] == "Feasible"
        seen = next(at for at, job in space.past if condition(job.get("status") or {}, "Admitted"))
        assert seen - applied < 3.0

    # the processor of 100m stands in the kernel, at the pod and at its container, and is what the agent reports
    for name, count in units.items():
        processors = space.status(name)["promise"]["processors"]
        pods = await space.running(name, processors)
        assert covers([(note(p, "begin"), note(p, "end")) for p in pods], count)
        assert {(c["begin"], c["pod"]) for c in space.status(name)["chunks"]} == {
            (note(p, "begin"), p["metadata"]["name"]) for p in pods
        }
        for pod in pods:
            caps = cluster.caps(pod)
            outer = min(caps, key=len)
            inner = next(folder for folder in caps if container(pod) in folder)
            assert caps[outer] == caps[inner] == (10000, 100000)

    # what kubectl shows while it runs
    await eventually(lambda: 0 < space.status("primes")["units"]["done"] < 60, within=60)
    row = columns(await space.kubectl("get", "dj"))["primes"]
    assert list(row) == ["NAME", "DEADLINE", "ADMITTED", "PROGRESS", "ETA", "MARGIN", "AGE"]
    assert row["ADMITTED"] == "True"
    assert 0 < int(row["PROGRESS"].removesuffix("%")) < 100
    assert moment(row["DEADLINE"]) == moment(space.status("primes")["promise"]["deadline"])
    assert moment(row["ETA"]) < moment(row["DEADLINE"])

    alone_found = {name: alone(name, count, tmp_path) for name, count in units.items()}
    for name, count in units.items():
        status = await space.end(name, within=90)
        assert space.condition(name, "Completed")["reason"] == "Completed"
        assert space.condition(name, "OnTrack")["status"] == "True"
        assert moment(status["finishedAt"]) <= moment(status["promise"]["deadline"])
        assert status["completed"] == [{"begin": 0, "end": count}]
        assert status["units"] == {"done": count, "running": 0, "total": count}
        assert "chunks" not in status
        assert space.result(name) == alone_found[name]
        assert {"Feasible", "Completed"} <= set(await space.events(name))
    assert columns(await space.kubectl("get", "dj"))["primes"]["PROGRESS"] == "100%"
    # pods of chunks go once they are accounted, the reduce stays to be read
    await eventually(lambda: not any(space.pods_of(name, gone=False) for name in units))
    assert len(space.pods_of("primes", "Reduce", gone=False)) == 1

    after = cluster.metrics(leader, 8080)
    grown = {series: value - before.get(series, 0.0) for series, value in after.items()}
    assert grown['punctual_admission_decisions_total{reason="Feasible",result="True"}'] >= 2
    assert grown["punctual_promises_kept_total"] >= 2
    assert grown["punctual_admission_duration_seconds_count"] >= 2
    assert grown['punctual_chunks_created_total{kind="Reduce"}'] >= 2
    assert after["punctual_agents_silent"] == 0
    assert {s for s in after if s.startswith("punctual_deadline_miss_total{") and grown[s]} == set()


async def test_a_standby_says_that_it_does_not_lead_and_is_ready(cluster):
    names = {p["metadata"]["name"] for p in cluster.pods("operator")}
    leads = {name: cluster.metrics(name, 8080)["punctual_leader"] for name in names}
    assert sorted(leads.values()) == [0, 1]
    assert leads[cluster.leader()["metadata"]["name"]] == 1
