"""A world without an API server, in which replicas lead. They end with their test."""

import pytest
from term_world import World


@pytest.fixture
async def world():
    async with World() as made:
        yield made
