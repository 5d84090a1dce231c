"""Two replicas, one Secret: whoever is faster, both end with one authority, and every connection is trusted."""

import asyncio
import ssl
from dataclasses import replace

import pytest

from punctual.errors import ClusterError, Forbidden
from punctual.kube.trust.ca import Lifetimes
from punctual.kube.trust.rotation import Rotation

NAMES = ("punctual.lab.svc", "localhost")
LIVES = Lifetimes(authority=3300, serving=3300, backdate=60, spread=60)  # due 2180 s after they were made


async def handshake(keeper, bundle):
    """Connect as an agent that trusts ``bundle``; return the server certificate's serial."""

    async def greet(_, writer):
        writer.write(b"hello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=keeper.context)
    async with server:
        trust = ssl.create_default_context(cadata=bundle)
        trust.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=NAMES[0])
        serial = writer.get_extra_info("peercert")["serialNumber"]
        await reader.read()
        writer.close()
        await writer.wait_closed()
        return serial


async def test_first_start_makes_one_authority_and_a_second_round_writes_nothing(vault, time):
    keeper = Rotation(vault, NAMES, time)
    await keeper.tend()
    assert vault.writes == ["secret", "map"]
    assert await handshake(keeper, vault.map)
    await keeper.tend()
    assert vault.writes == ["secret", "map"]


async def test_a_secret_made_empty_by_the_chart_is_filled(vault, time):
    vault.secret = ({}, "7")
    await Rotation(vault, NAMES, time).tend()
    assert set(vault.secret[0]) == {"ca.crt", "ca.key", "retired.crt"}


async def test_two_that_start_together_share_the_faster_ones_authority(vault, time):
    first, second = Rotation(vault, NAMES, time), Rotation(vault, NAMES, time)
    vault.before_write = [second.tend]
    await first.tend()
    assert vault.writes == ["secret", "map", "409"]
    assert first.trust == second.trust
    # certificates of their own, one trust
    assert await handshake(first, vault.map) != await handshake(second, vault.map)


async def test_agents_trust_both_replicas_at_every_moment_of_a_rotation(vault, time):
    replicas = [Rotation(vault, NAMES, time, lifetimes=LIVES) for _ in range(2)]
    for keeper in replicas:
        await keeper.tend()
    signers = set()
    mounted = vault.map  # what an agent has: renewed late, by every third round
    for round_, seconds in enumerate((0, 300, 1950, 30, 29, 1, 30, 60, 200, 200, 100)):
        time.now += seconds
        await replicas[round_ % 2].tend()  # the other one lags behind
        if round_ % 3 == 2:
            mounted = vault.map
        for keeper in replicas:
            assert await handshake(keeper, mounted), f"round {round_}"
        signers.add(replicas[0].trust.signing.certificate)
    assert len(signers) == 2


async def test_a_configmap_that_cannot_be_written_holds_the_rotation_up(vault, time):
    keeper = Rotation(vault, NAMES, time, lifetimes=LIVES)
    await keeper.tend()
    first = keeper.trust.signing
    vault.refuse_map = True
    time.now += 2300
    for _ in range(5):
        with pytest.raises(Forbidden):
            await keeper.tend()
        time.now += 100
    assert keeper.trust.signing == first
    assert keeper.trust.coming is not None
    vault.refuse_map = False
    await keeper.tend()  # publishes
    await keeper.tend()  # sees it
    assert keeper.trust.published == time.now
    time.now += 60
    await keeper.tend()
    assert keeper.trust.retired == (first.certificate,)


@pytest.mark.parametrize("spoil", ["deleted", "emptied", "garbage"])
async def test_a_lost_secret_is_put_back_from_memory(spoil, vault, time):
    keeper = Rotation(vault, NAMES, time)
    await keeper.tend()
    before, mounted = keeper.trust, vault.map
    vault.secret = {"deleted": None, "emptied": ({}, "x"), "garbage": ({"ca.crt": "?", "ca.key": "?"}, "x")}[spoil]
    await keeper.tend()
    assert keeper.trust == before
    assert vault.map == mounted


async def test_the_serving_certificate_is_renewed_in_the_running_server(vault, time):
    keeper = Rotation(vault, NAMES, time, lifetimes=replace(LIVES, authority=100_000))
    await keeper.tend()
    context, first = keeper.context, await handshake(keeper, vault.map)
    time.now += 2170
    await keeper.tend()
    assert await handshake(keeper, vault.map) == first
    time.now += 20
    await keeper.tend()
    assert keeper.context is context
    assert await handshake(keeper, vault.map) != first
    assert vault.writes == ["secret", "map"]


async def test_a_secret_that_never_stands_still_is_an_error(vault, time):

    async def touch():
        vault.secret = ({}, str(len(vault.writes)) + "x")
        vault.before_write.append(touch)

    vault.before_write.append(touch)
    with pytest.raises(ClusterError, match="changed during each"):
        await Rotation(vault, NAMES, time).tend()
