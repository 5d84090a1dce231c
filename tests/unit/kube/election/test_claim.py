"""Two installations of one cluster, each with a Lease of its own: one leads, the other says which and waits."""

import asyncio

import pytest
from electors import Candidate, Client, Server
from structlog.testing import capture_logs

from punctual.kube.election.claim import Claim, Installation

pytestmark = pytest.mark.looptime
FIRST, SECOND = "first/punctual", "second/punctual"


@pytest.fixture
async def stage():
    """Return (claims, log, enter, cast): ``enter("a", of="first")`` starts a replica of that installation."""
    claims, leases, log, cast = Server(), {}, [], []

    def enter(name: str, *, of: str) -> Candidate:
        cast.append(Candidate(leases.setdefault(of, Server()), name, log, claims=claims, of=of))
        return cast[-1]

    yield claims, log, enter
    for candidate in cast:
        await candidate.leave()


async def test_the_second_installation_names_the_first_and_does_not_lead(stage):
    claims, log, enter = stage
    first = enter("a", of="first")
    await asyncio.sleep(1)
    with capture_logs() as said:
        second = enter("b", of="second")
        await asyncio.sleep(600)
    assert log == ["0 a leads 1"]
    assert first.elector.other_installation == ""
    assert second.elector.other_installation == FIRST
    assert [(e["log_level"], e["installation"]) for e in said if e["event"] == "another_installation_leads"] == [
        ("error", FIRST)
    ], "once, not at each try"
    assert claims.lease["spec"]["holderIdentity"] == FIRST


async def test_two_that_start_at_once_do_not_both_lead(stage):
    _, log, enter = stage
    for name, of in (("a", "first"), ("b", "second"), ("c", "third")):
        enter(name, of=of)
    await asyncio.sleep(300)
    assert len(log) == 1


async def test_a_claim_that_is_deleted_lets_the_second_lead_at_once(stage):
    claims, log, enter = stage
    first = enter("a", of="first")
    await asyncio.sleep(1)
    second = enter("b", of="second")
    await asyncio.sleep(29)
    await first.end()
    claims.put(None)
    await asyncio.sleep(3)
    assert [line.split(maxsplit=1)[1] for line in log] == ["a leads 1", "a stops", "b leads 1"]
    assert second.elector.other_installation == ""


def leaver(claims, of="first"):
    """Return the claim of the process that uninstalls."""
    return Claim(Client(claims), Installation(of, "punctual"))


async def test_no_replica_of_an_installation_that_leaves_leads(stage):
    claims, log, enter = stage
    first = enter("a", of="first")
    await asyncio.sleep(1)
    enter("b", of="first")
    await asyncio.sleep(30)
    leaving = leaver(claims)
    with capture_logs() as said:
        assert await leaving.leave()
        await asyncio.sleep(11)
        assert [line.split()[1:] for line in log] == [["a", "leads", "1"], ["a", "stops"]]
        assert "holderIdentity" not in first.elector._lease["spec"], "its Lease is released"
        await asyncio.sleep(45)
        assert await leaving.leave()
        assert await leaver(claims).leave(), "a hook that is repeated"
        await asyncio.sleep(55)
    assert len(log) == 2, "nor a standby, until a minute after the last mark"
    told = {e["message"] for e in said if e["event"] == "another_installation_leads"}
    assert told == {"the release punctual in namespace first is being uninstalled; this one leads after a minute"}


async def test_a_new_installation_of_that_name_leads_at_once_and_another_one_after_a_minute(stage):
    claims, log, enter = stage
    enter("a", of="first")
    await asyncio.sleep(1)
    other = enter("x", of="second")
    await asyncio.sleep(20)
    await leaver(claims).leave()
    await asyncio.sleep(40)
    assert other.elector.other_installation == f"{FIRST}/leaving"
    enter("b", of="first")
    await asyncio.sleep(3)
    assert [line.split()[1] for line in log] == ["a", "a", "b"]
    assert claims.lease["spec"]["holderIdentity"] == FIRST


async def test_the_other_installation_follows_one_that_has_left(stage):
    claims, log, enter = stage
    first = enter("a", of="first")
    await asyncio.sleep(1)
    enter("x", of="second")
    await asyncio.sleep(20)
    await leaver(claims).leave()
    await first.end()
    await asyncio.sleep(65)
    assert [line.split()[1] for line in log] == ["a", "a", "x"]


async def test_an_installation_that_does_not_lead_leaves_without_a_mark(stage):
    claims, log, enter = stage
    enter("a", of="first")
    await asyncio.sleep(1)
    assert not await leaver(claims, of="second").leave()
    await asyncio.sleep(100)
    assert len(log) == 1
    assert claims.lease["spec"]["holderIdentity"] == FIRST


async def test_an_installation_that_is_gone_without_a_word_is_followed_after_a_minute(stage):
    _, log, enter = stage
    first = enter("a", of="first")
    await asyncio.sleep(1)
    enter("b", of="second")
    await asyncio.sleep(29)
    first.kill()
    await asyncio.sleep(100)
    at, replica, *_ = log[1].split()
    assert replica == "b"
    assert 60 + 20 <= float(at) <= 60 + 30 + 2  # from its last renewal, which is ten seconds old at most


async def test_a_rolling_restart_keeps_the_claim(stage):
    _, log, enter = stage
    first = enter("a", of="first")
    enter("x", of="second")
    await asyncio.sleep(30)
    await first.end()
    await asyncio.sleep(40)  # a drained node's only replica comes back
    enter("b", of="first")
    await asyncio.sleep(300)
    assert [line.split()[1] for line in log] == ["a", "a", "b"]


async def test_a_leader_that_was_away_too_long_stops_when_another_installation_leads(stage):
    claims, log, enter = stage
    first = enter("a", of="first")
    await asyncio.sleep(1)
    enter("b", of="second")
    first.claims.cut = True  # its own Lease it can renew
    await asyncio.sleep(75)
    assert [line.split()[1:] for line in log] == [["a", "leads", "1"], ["b", "leads", "1"]]
    first.claims.cut = False
    await asyncio.sleep(15)
    assert log[2].split()[1:] == ["a", "stops"]
    assert first.elector.other_installation == SECOND
    await asyncio.sleep(300)
    assert len(log) == 3
    assert claims.lease["spec"]["holderIdentity"] == SECOND


async def test_replicas_of_one_installation_share_its_claim(stage):
    claims, log, enter = stage
    first = enter("a", of="first")
    await asyncio.sleep(1)
    enter("b", of="first")
    await asyncio.sleep(30)
    await first.end()
    await asyncio.sleep(1)
    assert [line.split()[1:] for line in log] == [["a", "leads", "1"], ["a", "stops"], ["b", "leads", "2"]]
    assert claims.lease["spec"]["holderIdentity"] == FIRST
    before = claims.writes
    await asyncio.sleep(100)
    assert claims.writes - before <= 11, "once in ten seconds"


async def test_a_claim_that_may_not_be_written_is_said(stage):
    _, log, enter = stage
    first = enter("a", of="first")
    first.claims.cut = True
    with capture_logs() as said:
        await asyncio.sleep(60)
    assert log == []
    assert {e["event"] for e in said} == {"claim_not_reached"}
    first.claims.cut = False
    await asyncio.sleep(3)
    assert [line.split()[1:] for line in log] == [["a", "leads", "1"]]
