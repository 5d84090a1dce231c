"""What becomes of jobs whose work goes wrong, or whose owner thinks again: all at the same time, on one pool."""

import asyncio
import re

import pytest
from live import condition, covers, eventually, note

from punctual.scheduling.model.job import PilotSample
from punctual.scheduling.model.pilots import fit

SLOW = {"perUnit": "300ms", "startup": "3s"}


async def test_work_that_goes_wrong_is_done_again_measured_suspended_or_given_up(space):
    # units take 0.2 s, which is less than declared
    common = {"deadline": "4m", "cost": SLOW, "pause": 0.2, "processors": {"max": 1}}
    await space.apply(
        space.manifest("redo", units=60, crash=30, reduce="5s", **common),
        space.manifest("resume", units=60, crash=30, reduce="5s", restart="Resume", **common),
        space.manifest("hopeless", units=60, crash="always", chunkRetries=1, **common),
        space.manifest("measured", units=100, deadline="5m", pause=0.2, reduce="5s"),
        space.manifest("paused", units=140, restart="Resume", **{**common, "deadline": "6m"}),
    )
    stories = (redo, resume, hopeless, measured, paused)
    ends = await asyncio.gather(*(story(space) for story in stories), return_exceptions=True)
    if failures := [end for end in ends if isinstance(end, Exception)]:
        raise ExceptionGroup("not as told", failures)


async def redo(space):
    """A chunk that failed half-way is done again as a whole, and each unit counts once."""
    status = await space.end("redo")
    assert space.is_so("redo", "Completed")
    (failed,) = space.pods_of("redo", phase="Failed")
    again = [p for p in space.pods_of("redo") if note(p, "attempt") == 2]
    assert [note(p, "begin") for p in again] == [note(failed, "begin")] == [0]
    assert space.ranges("redo") == [((0, 60), "60")]
    assert status["completed"] == [{"begin": 0, "end": 60}]
    assert "exit code 1" in (await space.events("redo"))["ChunkFailed"]


async def resume(space):
    """What was reported before a chunk failed is durable: only the rest is done again."""
    await space.end("resume")
    assert space.is_so("resume", "Completed")
    (failed,) = space.pods_of("resume", phase="Failed")
    (again,) = [p for p in space.pods_of("resume") if note(p, "attempt") > 1]
    assert note(failed, "begin") == 0
    # the agent reads once a second, the worker went on for ten more
    assert note(again, "begin") == 30
    assert space.ranges("resume") == [((0, 30), ""), ((30, 60), "30")]


async def hopeless(space):
    """Work that fails more often than chunkRetries allows fails the job, with the reason where a user looks."""
    status = await space.end("hopeless")
    failed = space.is_so("hopeless", "Failed", "ChunkFailed")
    assert failed
    assert "exit code 1" in space.condition("hopeless", "Failed")["message"]
    assert len(space.pods_of("hopeless", phase="Failed")) == 2
    assert space.condition("hopeless", "OnTrack")["status"] == "False"
    assert status["failed"] == [{"begin": 0, "end": 60, "count": 2}]


async def measured(space):
    """A job that declares no cost is measured by pilots, promised what that says, and the pilots' units count."""
    await eventually(lambda: space.condition("measured", "Admitted").get("reason") == "Feasible")
    answers = [condition(status, "Admitted") for _, status in space.written("measured")]
    assert ("Unknown", "Measuring") in {(a["status"], a["reason"]) for a in answers if a}
    measured, cost = space.status("measured")["pilots"], space.status("measured")["cost"]
    samples = [PilotSample(s["units"], s["seconds"]) for s in measured]
    assert all(s.seconds > 0.2 * s.units for s in samples)  # they take 0.2 s, beside starting a program
    assert (cost["perUnit"], cost["startup"]) == pytest.approx((fit(samples).chi, fit(samples).theta_cp), rel=0.01)
    status = await space.end("measured")
    assert space.is_so("measured", "Completed", "Completed")
    pilots = space.pods_of("measured", "Pilot")
    assert len(pilots) >= 2
    found = space.ranges("measured")
    assert covers([r for r, _ in found], 100)
    assert {(note(p, "begin"), note(p, "end")) for p in pilots} < {r for r, _ in found}
    assert sum(int(said) for _, said in found) == 100
    assert status["completed"] == [{"begin": 0, "end": 100}]


async def paused(space):
    """Edits of a promise: a deadline refused and one accepted; suspended its pods go, resumed only the rest is done."""
    assert (await space.answer("paused"))["reason"] == "Feasible"
    promised = space.status("paused")["promise"]["deadline"]

    await space.edit("paused", deadline="20s")
    await eventually(lambda: space.condition("paused", "SpecApplied").get("reason") == "EditRefused")
    assert space.condition("paused", "SpecApplied")["status"] == "False"
    assert space.status("paused")["promise"]["deadline"] == promised
    await space.edit("paused", deadline="5m")
    await eventually(lambda: space.is_so("paused", "SpecApplied", "Applied"))
    assert space.status("paused")["promise"]["deadline"] < promised

    await eventually(lambda: space.status("paused")["units"]["done"] >= 5)
    await space.edit("paused", suspend=True)
    await eventually(lambda: space.condition("paused", "Admitted").get("reason") == "Suspended")
    await eventually(lambda: not space.pods_of("paused", gone=False))
    assert "promise" not in space.status("paused")
    (done,) = space.status("paused")["completed"]
    assert done["begin"] == 0
    assert 5 <= done["end"] < 140

    await space.edit("paused", suspend=False)
    await eventually(lambda: space.is_so("paused", "Admitted", "Feasible"))
    await space.end("paused")
    assert space.is_so("paused", "Completed")
    again = [p for p in space.pods_of("paused") if note(p, "attempt") > 1]
    assert min(note(p, "begin") for p in again) == done["end"]
    assert re.fullmatch(r"140 units done in .*", space.condition("paused", "Completed")["message"])
