"""The elector under a clock that jumps: who leads when, under which epoch, whatever the API server does.

`Server` holds one Lease with the API server's own rules (a resource version that must match), and faults that a test
sets; the same elector meets a real API server in tests/api. The claim that all installations share is in a second
`Server`.
"""

import asyncio
import copy

import pytest
from electors import Candidate, Server

from punctual.errors import StoreFellBack
from punctual.kube.election.elector import Timing
from punctual.kube.election.lease_history import LeaseHistory

pytestmark = pytest.mark.looptime


@pytest.fixture
async def stage():
    server, log, cast = Server(), [], []

    def enter(name: str, **kwargs) -> Candidate:
        cast.append(Candidate(server, name, log, **kwargs))
        return cast[-1]

    yield server, log, enter
    for candidate in cast:
        await candidate.leave()


async def test_the_first_leads_and_renews_and_the_second_waits(stage):
    server, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    b = enter("b")
    await asyncio.sleep(300)
    assert log == ["0 a leads 1"]
    assert a.elector.leading
    assert not b.elector.leading
    assert 145 <= server.writes <= 152


async def test_a_release_hands_over_at_once_under_a_higher_epoch(stage):
    _, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    enter("b")
    await asyncio.sleep(29)
    await a.end()
    await asyncio.sleep(1)
    assert log == ["0 a leads 1", "30 a stops", "30 b leads 2"]


@pytest.mark.parametrize("taken", [False, True], ids=["still ours", "another's by now"])
async def test_a_release_behind_a_renewal_whose_answer_was_lost_gives_back_what_is_ours(stage, taken):
    server, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    enter("b")
    await asyncio.sleep(29)
    written, a.client.lose = server.writes, True
    while server.writes == written:  # noqa: ASYNC110  the clock jumps
        await asyncio.sleep(0.01)
    a.client.lose = False
    if taken:
        server.put({**server.lease, "spec": {**server.lease["spec"], "holderIdentity": "c", "leaseTransitions": 2}})
    await a.end()
    await asyncio.sleep(1)
    if taken:
        assert server.lease["spec"]["holderIdentity"] == "c"
        assert [line.split(maxsplit=1)[1] for line in log] == ["a leads 1", "a stops"]
    else:
        assert [line.split(maxsplit=1)[1] for line in log] == ["a leads 1", "a stops", "b leads 2"]


async def test_after_a_crash_the_standby_leads_when_the_lease_is_over(stage):
    _, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    enter("b")
    await asyncio.sleep(29)
    a.kill()
    await asyncio.sleep(17)
    assert log[0] == "0 a leads 1"
    at, who, *rest = log[1].split()
    assert (who, rest) == ("b", ["leads", "2"])
    assert 30 + 15 - 2 <= float(at) <= 30 + 15 + 2


async def test_a_leader_that_is_cut_off_stops_before_another_starts(stage):
    _, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    b = enter("b")
    await asyncio.sleep(29)
    a.client.cut = True
    overlap = False
    for _ in range(300):
        await asyncio.sleep(0.1)
        overlap |= a.elector.leading and b.elector.leading
    assert not overlap
    assert [line.split(maxsplit=1)[1] for line in log] == ["a leads 1", "a stops", "b leads 2"]
    stopped, started = (float(line.split()[0]) for line in log[1:])
    assert 38 <= stopped <= 40
    assert 43 <= started <= 47


async def test_a_call_that_hangs_does_not_outlive_the_deadline(stage):
    _, log, enter = stage
    a = enter("a")
    await asyncio.sleep(30)
    a.client.hang = True
    await asyncio.sleep(10.1)
    assert not a.elector.leading
    assert log[1].endswith("a stops")
    assert float(log[1].split()[0]) <= 40


async def test_who_is_elected_anew_does_not_lead_the_term_that_ran_out(stage):
    _, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    first = a.elector._epoch
    assert a.elector.leads(first)
    a.client.cut = True
    await asyncio.sleep(20)
    assert not a.elector.leads(first)
    a.client.cut = False
    await asyncio.sleep(40)
    assert a.elector.leading, log
    assert not a.elector.leads(first)
    assert a.elector.leads(a.elector._epoch)


async def test_leading_ends_by_itself_even_when_the_loop_is_starved(stage):
    _, _, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    ahead = 0.0
    loop = asyncio.get_running_loop()
    a.elector._monotonic = lambda: loop.time() + ahead
    assert a.elector.leading
    ahead = 11.0  # no callback, no timer ran meanwhile
    assert not a.elector.leading


async def test_a_renewal_whose_answer_comes_too_late_is_none(stage):
    _, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    ahead, loop, replace = 0.0, asyncio.get_running_loop(), a.client.replace
    a.elector._monotonic = lambda: loop.time() + ahead

    async def late(*arguments):
        nonlocal ahead
        answer = await replace(*arguments)
        ahead = 5.0  # the process stood still, and somebody asked it then
        assert not a.elector.leading
        return answer

    a.client.cut = True
    await asyncio.sleep(7)
    a.client.cut, a.client.replace = False, late
    await asyncio.sleep(2)
    assert log[1].endswith("a stops")


async def test_a_short_outage_changes_nothing(stage):
    server, log, enter = stage
    a = enter("a")
    await asyncio.sleep(30)
    a.client.cut = True
    await asyncio.sleep(7)
    a.client.cut = False
    await asyncio.sleep(60)
    assert log == ["0 a leads 1"]
    assert server.epoch == 1


async def test_lost_answers_are_recognized_as_our_own_writes(stage):
    server, log, enter = stage
    a = enter("a")
    await asyncio.sleep(30)
    a.client.lose = True
    await asyncio.sleep(4.5)
    a.client.lose = False
    await asyncio.sleep(60)
    assert log == ["0 a leads 1"]
    assert server.epoch == 1


async def test_an_acquisition_whose_answer_was_lost_is_made_again_under_a_higher_epoch(stage):
    server, log, enter = stage
    a = enter("a")
    a.client.lose = True
    await asyncio.sleep(1)
    a.client.lose = False
    await asyncio.sleep(3)
    assert log == ["2 a leads 2"]
    assert server.epoch == 2


async def test_the_same_name_again_raises_the_epoch(stage):
    _, log, enter = stage
    first = enter("a")
    await asyncio.sleep(5)
    first.kill()
    enter("a")
    await asyncio.sleep(1)
    assert log == ["0 a leads 1", "5 a leads 2"]


async def test_a_deleted_lease_does_not_begin_again_at_zero(stage):
    server, log, enter = stage
    enter("a", min_epoch=41)
    await asyncio.sleep(5)
    server.put(None)
    await asyncio.sleep(5)
    assert [line.split(maxsplit=1)[1] for line in log] == ["a leads 42", "a stops", "a leads 43"]


async def test_a_stolen_lease_ends_the_term_at_the_next_renewal(stage):
    server, log, enter = stage
    a = enter("a")
    await asyncio.sleep(4.5)
    stolen = copy.deepcopy(server.lease)
    stolen["spec"] |= {"holderIdentity": "thief", "leaseTransitions": 9}
    server.put(stolen)
    await asyncio.sleep(2.1)
    assert not a.elector.leading
    await asyncio.sleep(17)
    assert [line.split(maxsplit=1)[1] for line in log] == ["a leads 1", "a stops", "a leads 10"]


async def test_an_annotation_by_a_person_does_not_end_the_term(stage):
    server, log, enter = stage
    enter("a")
    await asyncio.sleep(4.5)
    server.put(server.lease | {"metadata": server.lease["metadata"] | {"annotations": {"who": "me"}}})
    await asyncio.sleep(30)
    assert log == ["0 a leads 1"]


async def test_of_many_only_one_leads_at_any_time(stage):
    server, log, enter = stage
    crowd = [enter(name) for name in "abcde"]
    for fallen in range(4):
        await asyncio.sleep(40)
        assert sum(one.elector.leading for one in crowd) == 1
        leader = next(one for one in crowd if one.elector.leading)
        leader.kill()
        assert server.epoch == fallen + 1
    await asyncio.sleep(40)
    epochs = [int(line.split()[-1]) for line in log if "leads" in line]
    assert epochs == [1, 2, 3, 4, 5]


def test_timing_that_would_let_two_lead_is_refused():
    with pytest.raises(ValueError, match="retry < renew < lease"):
        Timing(lease=10, renew=10, retry=2)


# a store that is set back


async def test_a_leader_ends_at_its_next_renewal_after_the_store_was_set_back(stage):
    server, log, enter = stage
    a = enter("a")
    await asyncio.sleep(5)
    saved = copy.deepcopy(server.lease)
    await asyncio.sleep(20)
    server.set_back(saved)
    await asyncio.sleep(2.1)
    assert not a.elector.leading
    assert log == ["0 a leads 1", "26 a stops"]
    with pytest.raises(StoreFellBack, match="leases/punctual has resource version 3, and had 13 before"):
        await a.task
    assert server.lease == saved  # not released: it is another's now


async def test_a_standby_ends_within_the_length_of_a_watch_after_the_store_was_set_back(stage):
    server, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    b = enter("b")
    await asyncio.sleep(5)
    saved = copy.deepcopy(server.lease)
    await asyncio.sleep(5)
    a.kill()
    server.set_back(saved)
    await asyncio.sleep(15)
    with pytest.raises(StoreFellBack, match="the store was set back"):
        await b.task
    assert log == ["0 a leads 1"]


async def test_a_leader_that_stood_still_knows_by_its_epoch_that_another_had_it_in_a_restored_store(stage):
    server, _, enter = stage
    a = enter("a")
    await asyncio.sleep(5)
    a.client.cut = True
    await asyncio.sleep(20)
    other = copy.deepcopy(server.lease)
    other["spec"]["holderIdentity"] = "b"
    server.set_back(other, writes=50)
    a.client.cut = False
    await asyncio.sleep(3)
    with pytest.raises(StoreFellBack, match="names b for epoch 1, which a had"):
        await a.task


@pytest.mark.parametrize("known", [1, 8], ids=["its own, of another leader", "a higher one"])
async def test_a_leader_leads_on_above_an_epoch_that_agents_know(stage, known):
    server, log, enter = stage
    a = enter("a")
    await asyncio.sleep(4.5)
    a.elector.begin_above(known)
    await asyncio.sleep(2.1)
    assert log == ["0 a leads 1", "6 a stops", f"6 a leads {known + 1}"]
    assert server.epoch == known + 1
    assert a.elector.began_above(known + 1)
    a.elector.begin_above(known)
    await asyncio.sleep(30)
    assert log[3:] == []


async def test_a_replica_that_lost_the_lease_does_not_take_it_because_agents_know_a_higher_epoch(stage):
    server, log, enter = stage
    a = enter("a")
    await asyncio.sleep(4.5)
    newer = copy.deepcopy(server.lease)
    newer["spec"] |= {"holderIdentity": "b", "leaseTransitions": 2}
    server.put(newer)
    a.elector.begin_above(2)
    await asyncio.sleep(3)
    assert log == ["0 a leads 1", "6 a stops"]
    assert server.lease["spec"]["holderIdentity"] == "b"
    await asyncio.sleep(20)
    assert [line.split(maxsplit=1)[1] for line in log[2:]] == ["a leads 3"]
    assert not a.elector.began_above(3)  # a newer leader was there, and no store was set back


async def test_an_agent_that_names_higher_epochs_again_and_again_ends_few_terms(stage):
    _, log, enter = stage
    a = enter("a")
    for _ in range(30):
        await asyncio.sleep(2)
        a.elector.begin_above(a.elector._epoch)
    assert 3 <= sum("leads" in line for line in log) <= 5


def lease(version, epoch, holder):
    return {"metadata": {"resourceVersion": version}, "spec": {"leaseTransitions": epoch, "holderIdentity": holder}}


SEEN = {
    "the same": ([("7", 2, "a")], ("7", 2, "a"), False),
    "a renewal": ([("7", 2, "a")], ("9", 2, "a"), False),
    "a release": ([("7", 2, "a")], ("9", 2, ""), False),
    "a new term behind a release": ([("7", 2, "a"), ("9", 2, "")], ("11", 3, "b"), False),
    "an older version": ([("7", 2, "a")], ("6", 2, "a"), True),
    "fewer digits": ([("10", 2, "a")], ("9", 2, "a"), True),
    "a lower epoch": ([("7", 2, "a")], ("8", 1, "a"), True),
    "another holder of an epoch": ([("7", 2, "a")], ("8", 2, "b"), True),
    "another holder of an epoch that was released": ([("7", 2, "a"), ("9", 2, "")], ("11", 2, "b"), True),
    "versions that are no numbers": ([("x9", 2, "a")], ("x1", 2, "a"), False),
}


@pytest.mark.parametrize("told", ["read", "watched"])
@pytest.mark.parametrize(("before", "now", "fell"), SEEN.values(), ids=SEEN)
def test_what_shows_in_the_lease_that_the_store_was_set_back(before, now, fell, told):
    history = LeaseHistory("the Lease")
    for one in before:
        (history.check if told == "read" else history.note)(lease(*one))
    if fell:
        with pytest.raises(StoreFellBack):
            history.check(lease(*now))
    else:
        history.check(lease(*now))


@pytest.mark.parametrize("late", [("6", 2, "a"), ("5", 1, "b")])
def test_a_watch_of_a_server_that_lags_behind_shows_no_fall_and_is_not_believed(late):
    history = LeaseHistory("the Lease")
    history.check(lease("7", 2, "a"))
    history.note(lease(*late))
    history.check(lease("7", 2, "a"))
    with pytest.raises(StoreFellBack):
        history.check(lease("6", 2, "a"))
