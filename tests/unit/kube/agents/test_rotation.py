"""Two replicas, one Secret: whoever is faster, both end with one authority, and every connection is trusted."""

import asyncio
import ssl
from dataclasses import replace

import pytest
from clocks import clock

from punctual.errors import ClusterError, Forbidden
from punctual.kube.agents.ca import Lifetimes
from punctual.kube.agents.rotation import Rotation

NAMES = ("punctual.lab.svc", "localhost")
LIVES = Lifetimes(authority=3300, serving=3300, backdate=60, spread=60)  # due 2180 s after they were made


async def handshake(rotation, bundle):
    """Connect as an agent that trusts ``bundle``; return the server certificate's serial."""

    async def greet(_, writer):
        writer.write(b"hello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=rotation.context)
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


async def test_first_start_makes_one_authority_and_a_second_round_writes_nothing(store, time):
    rotation = Rotation(store, NAMES, clock(now=time))
    await rotation.tend()
    assert store.writes == ["secret", "map"]
    assert await handshake(rotation, store.map)
    await rotation.tend()
    assert store.writes == ["secret", "map"]


async def test_a_secret_made_empty_by_the_chart_is_filled(store, time):
    store.secret = ({}, "7")
    await Rotation(store, NAMES, clock(now=time)).tend()
    assert set(store.secret[0]) == {"ca.crt", "ca.key", "retired.crt"}


async def test_two_that_start_together_share_the_faster_ones_authority(store, time):
    first, second = Rotation(store, NAMES, clock(now=time)), Rotation(store, NAMES, clock(now=time))
    store.before_write = [second.tend]
    await first.tend()
    assert store.writes == ["secret", "map", "409"]
    assert first.trust == second.trust
    # certificates of their own, one trust
    assert await handshake(first, store.map) != await handshake(second, store.map)


async def test_agents_trust_both_replicas_at_every_moment_of_a_rotation(store, time):
    replicas = [Rotation(store, NAMES, clock(now=time), lifetimes=LIVES) for _ in range(2)]
    for rotation in replicas:
        await rotation.tend()
    signers = set()
    mounted = store.map  # what an agent has: renewed late, by every third round
    for round_, seconds in enumerate((0, 300, 1950, 30, 29, 1, 30, 60, 200, 200, 100)):
        time.now += seconds
        await replicas[round_ % 2].tend()  # the other one lags behind
        if round_ % 3 == 2:
            mounted = store.map
        for rotation in replicas:
            assert await handshake(rotation, mounted), f"round {round_}"
        signers.add(replicas[0].trust.signing.certificate)
    assert len(signers) == 2


async def test_a_configmap_that_cannot_be_written_holds_the_rotation_up(store, time):
    rotation = Rotation(store, NAMES, clock(now=time), lifetimes=LIVES)
    await rotation.tend()
    first = rotation.trust.signing
    store.refuse_map = True
    time.now += 2300
    for _ in range(5):
        with pytest.raises(Forbidden):
            await rotation.tend()
        time.now += 100
    assert rotation.trust.signing == first
    assert rotation.trust.coming is not None
    store.refuse_map = False
    await rotation.tend()  # publishes
    await rotation.tend()  # sees it
    assert rotation.trust.published == time.now
    time.now += 60
    await rotation.tend()
    assert rotation.trust.retired == (first.certificate,)


@pytest.mark.parametrize("spoil", ["deleted", "emptied", "garbage"])
async def test_a_lost_secret_is_put_back_from_memory(spoil, store, time):
    rotation = Rotation(store, NAMES, clock(now=time))
    await rotation.tend()
    before, mounted = rotation.trust, store.map
    store.secret = {"deleted": None, "emptied": ({}, "x"), "garbage": ({"ca.crt": "?", "ca.key": "?"}, "x")}[spoil]
    await rotation.tend()
    assert rotation.trust == before
    assert store.map == mounted


async def test_the_serving_certificate_is_renewed_in_the_running_server(store, time):
    rotation = Rotation(store, NAMES, clock(now=time), lifetimes=replace(LIVES, authority=100_000))
    await rotation.tend()
    context, first = rotation.context, await handshake(rotation, store.map)
    time.now += 2170
    await rotation.tend()
    assert await handshake(rotation, store.map) == first
    time.now += 20
    await rotation.tend()
    assert rotation.context is context
    assert await handshake(rotation, store.map) != first
    assert store.writes == ["secret", "map"]


async def test_a_secret_that_never_stands_still_is_an_error(store, time):

    async def touch():
        store.secret = ({}, str(len(store.writes)) + "x")
        store.before_write.append(touch)

    store.before_write.append(touch)
    with pytest.raises(ClusterError, match="changed during each"):
        await Rotation(store, NAMES, clock(now=time)).tend()
