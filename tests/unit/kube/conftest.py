"""What authority and exchange stand on, in memory."""

import itertools
import time as system

import pytest

from punctual.errors import Forbidden


class MemoryVault:
    """A Secret and a ConfigMap as the API server keeps them; ``before_write`` lets somebody else be faster."""

    def __init__(self):
        self.secret = None
        self.map = None
        self.writes = []
        self.before_write = []
        self.refuse_map = False
        self._versions = map(str, itertools.count(1))

    async def read(self):
        return self.secret and (dict(self.secret[0]), self.secret[1])

    async def write(self, data, *, version):
        if self.before_write:
            await self.before_write.pop()()
        if version != (self.secret and self.secret[1]):
            self.writes.append("409")
            return False
        self.secret = (dict(data), next(self._versions))
        self.writes.append("secret")
        return True

    async def published(self):
        return self.map

    async def publish(self, bundle):
        if self.refuse_map:
            raise Forbidden("configmaps is forbidden")
        self.map = bundle
        self.writes.append("map")


class Time:
    """A clock that tests move; what is made from here to now holds now, when handshakes look at the real clock."""

    def __init__(self):
        self.now = system.time() - 3000.0

    def __call__(self):
        return self.now


@pytest.fixture
def store():
    return MemoryVault()


@pytest.fixture
def time():
    return Time()
