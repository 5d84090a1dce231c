"""A list whose requests fail now and then comes to its end, and does not begin anew for it."""

import itertools

import pytest

from punctual.errors import Gone, Invalid, StoreFellBack, Unreachable
from punctual.kube.cluster.client import Listing
from punctual.kube.cluster.walk import walk


class Server:
    """A collection of ``size`` objects in pages of ten; ``faults`` maps the nth request to what it raises."""

    def __init__(self, size, faults):
        self.size, self.faults, self.requests = size, faults, 0
        self.version, self.listed = "7", {}

    async def pages(self, _path, *, page, start, **_):
        for begin in itertools.count(int(start or 0), page):
            self.requests += 1
            if error := self.faults.get(self.requests):
                raise error
            end = min(begin + page, self.size)
            yield Listing(list(range(begin, end)), self.version, str(end) if end < self.size else "")
            if end == self.size:
                return


async def walked(server):
    """Return the objects in the order in which they came, and how often the walk had to wait."""
    waits = []

    async def patience(error):
        waits.append(error)

    found = [item async for page in walk(server, "/things", patience=patience, page=10) for item in page.items]
    return found, len(waits)


async def test_a_page_that_fails_is_asked_for_again_and_those_before_it_stay_read():
    server = Server(100, {3: Unreachable("cut"), 4: Unreachable("cut"), 9: Unreachable("cut")})
    assert await walked(server) == (list(range(100)), 3)
    assert server.requests == 13


async def test_an_expired_token_is_replaced_by_the_one_that_the_server_names():
    server = Server(100, {6: Gone("too old", resume="50")})
    assert await walked(server) == (list(range(100)), 1)
    assert server.requests == 11


@pytest.mark.parametrize("error", [Gone("too old"), Invalid("continue key is not valid")])
async def test_where_the_server_names_no_token_the_list_begins_anew(error):
    found, waits = await walked(Server(100, {6: error}))
    assert (found, waits) == ([*range(50), *range(100)], 1)


async def test_a_walk_ends_where_its_patience_does():
    async def patience(error):
        raise error

    with pytest.raises(Unreachable):
        async for _ in walk(Server(10, {1: Unreachable("cut")}), "/things", patience=patience):
            pass


@pytest.mark.parametrize(("versions", "fell"), [(["9", "9", "10"], False), (["10", "9"], True), (["b", "a"], False)])
async def test_a_list_that_is_older_than_one_before_shows_that_the_store_was_set_back(versions, fell):
    server = Server(25, {})
    *before, last = versions
    for server.version in before:
        await walked(server)
    server.version = last
    if fell:
        with pytest.raises(StoreFellBack, match="/things has resource version 9, and had 10 before"):
            await walked(server)
    else:
        assert await walked(server) == (list(range(25)), 0)


async def test_a_walk_that_began_before_a_newer_one_shows_no_fall():
    """Its pages are all of the time when it began."""
    server, other = Server(30, {}), Server(30, {})
    other.listed, other.version = server.listed, "8"
    pages = walk(server, "/things", patience=None, page=10)
    await anext(pages)
    await walked(other)
    assert len([page async for page in pages]) == 2
    assert server.listed == {"/things": "8"}
