"""A list whose requests fail now and then comes to its end, and does not begin anew for it."""

import itertools

import pytest

from punctual.errors import Gone, Invalid, Unreachable
from punctual.kube.cluster.client import Listing
from punctual.kube.cluster.walk import walk


class Server:
    """A collection of ``size`` objects in pages of ten; ``faults`` maps the nth request to what it raises."""

    def __init__(self, size, faults):
        self.size, self.faults, self.requests = size, faults, 0

    async def pages(self, _path, *, page, start, **_):
        for begin in itertools.count(int(start or 0), page):
            self.requests += 1
            if error := self.faults.get(self.requests):
                raise error
            end = min(begin + page, self.size)
            yield Listing(list(range(begin, end)), "7", str(end) if end < self.size else "")
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
