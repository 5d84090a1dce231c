"""Electors in threads of their own against a real API server, in real time: handover, crash, a starved main loop."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from server import Server

from punctual.kube.api.resources import LEASES
from punctual.kube.election.claim import Installation
from punctual.kube.election.elector import ElectorThread, Timing

LONG = Timing(lease=600, renew=500, retry=0.5)
"""Nobody loses it because the machine is slow, nobody wins it because time passes."""
SHORT = Timing(lease=3, renew=2, retry=0.5)


@pytest.fixture
def candidates(kubeconfig, namespace):
    """``async with candidates("a", log) as elector``: one that stands, and says so in the log with the time."""

    @asynccontextmanager
    async def candidate(name: str, log: list, *, path=kubeconfig, min_epoch: int = 0, timing=LONG):
        elector = ElectorThread(
            str(path),
            namespace=namespace,
            name="punctual",
            installation=Installation(namespace, "punctual", shared=namespace),
            identity=name,
            candidate=SimpleNamespace(
                lead=lambda epoch: log.append(f"{name} leads {epoch}"),
                follow=lambda: log.append(f"{name} stops"),
                min_epoch=lambda: min_epoch,
            ),
            timing=timing,
        )
        elector.start()
        try:
            yield elector
        finally:
            await elector.stop()

    return candidate


async def test_a_leader_that_ends_hands_over_at_once(candidates, client, namespace, eventually):
    log: list = []
    async with candidates("a", log) as a:
        await eventually(lambda: log == ["a leads 1"])
        async with candidates("b", log) as b:
            await eventually(lambda: b._elector._lease is not None)
            assert a.leading
            assert not b.leading
            await a.stop()
            assert not a.leading
            await eventually(lambda: b.leading)
    assert log == ["a leads 1", "a stops", "b leads 2", "b stops"]
    lease = await client.get(LEASES.path(namespace=namespace, name="punctual"))
    assert "holderIdentity" not in lease["spec"]
    assert lease["spec"]["leaseTransitions"] == 2


async def test_after_a_crash_a_standby_leads_when_the_lease_is_over(candidates, tunnel, eventually):
    """How soon, to the second, is shown under a clock of its own (tests/unit/kube/election/test_elector.py)."""
    log: list = []
    async with candidates("a", log, path=tunnel.kubeconfig, timing=SHORT) as a:
        await eventually(lambda: a.leading)
        async with candidates("b", log) as b:
            await eventually(lambda: b._elector._lease is not None)
            tunnel.stall()
            overlap = False
            async with asyncio.timeout(60):
                while not log[-1].startswith("b"):
                    await asyncio.sleep(0.01)
                    overlap |= b.leading and a.leading  # in this order: time may pass between the two
            assert not overlap
            assert b.leading
            # in turns, under an epoch of its own each; more than twice where the machine stood still before
            assert log[1::2] == ["a stops"] * (len(log) // 2)
            assert [int(one.split()[-1]) for one in log[::2]] == [*range(1, len(log) // 2 + 2)]
            await tunnel.cut()
            tunnel.resume()


async def test_a_main_loop_that_plans_for_long_does_not_lose_the_lease(candidates, kubeconfig, namespace, eventually):
    log: list = []
    path = LEASES.path(namespace=namespace, name="punctual")
    async with candidates("a", log) as a, candidates("b", log) as b:
        await eventually(lambda: a.leading or b.leading)
        leader = a if a.leading else b
        server, renewals = Server(kubeconfig), set()

        def goes_on():
            renewals.add(server.get(path)["spec"]["renewTime"])
            return len(renewals) > 5

        server.until(goes_on)  # this loop stands still meanwhile
        server.close()
        assert leader.leading
        await asyncio.sleep(0)
        assert len(log) == 1


async def test_a_deleted_lease_goes_on_above_what_the_objects_carry(candidates, client, namespace, eventually):
    log: list = []
    async with candidates("a", log, min_epoch=41) as a:
        await eventually(lambda: a.leading)
        await client.delete(LEASES.path(namespace=namespace, name="punctual"))
        await eventually(lambda: len(log) == 3)
        assert log == ["a leads 42", "a stops", "a leads 43"]


async def test_no_api_server_is_waited_for(candidates, tunnel, eventually):
    await tunnel.cut()
    log: list = []
    async with candidates("a", log, path=tunnel.kubeconfig) as a:
        await eventually(lambda: tunnel.refused > 1)
        assert not a.leading
        tunnel.resume()
        await eventually(lambda: a.leading)


async def test_a_thread_that_was_never_started_can_be_stopped(kubeconfig, namespace):
    elector = ElectorThread(
        str(kubeconfig),
        namespace=namespace,
        name="punctual",
        installation=Installation(namespace, "punctual", shared=namespace),
        identity="a",
        candidate=SimpleNamespace(),
    )
    await elector.stop()


async def test_what_ends_the_thread_is_raised_where_somebody_waits(tmp_path, namespace):
    elector = ElectorThread(
        str(tmp_path / "no-such-kubeconfig"),
        namespace=namespace,
        name="punctual",
        installation=Installation(namespace, "punctual", shared=namespace),
        identity="a",
        candidate=SimpleNamespace(),
    )
    elector.start()
    with pytest.raises(Exception, match="no configuration for the API server"):
        await elector.ended
    await elector.stop()
