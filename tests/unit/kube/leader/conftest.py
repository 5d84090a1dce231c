"""A world without an API server, in which replicas lead. They end with their test."""

import pytest
from term_world import World


@pytest.fixture
async def world():
    made = World()
    yield made
    for replica in made.replicas:
        await replica.end()
