"""A pod that came and went while the leader's watches said nothing keeps no job from its end."""

import pytest
from returning import LiveWorld, ended
from term_world import POD

from punctual.kube.actors import created_pods


@pytest.fixture
async def world(monkeypatch):
    monkeypatch.setattr(created_pods, "LOOK", 0.01)
    async with LiveWorld() as made:
        yield made


async def created_unseen(world, **spec):
    """Return a leader that has created the pods of a job and does not see them, and the job."""
    leader = world.replica()
    leader.lead(1)
    await world.until(lambda: leader.term.leads)
    leader.lend()
    leader.deaf = True
    job = world.job("job", **spec)
    leader.observe("ADDED", job)
    await world.until(lambda: world.server.pods and leader.term.depth == 0)
    return leader, job


@pytest.mark.parametrize("spec", [{}, {"class": "Guest"}], ids=["promised", "guest"])
async def test_its_units_are_given_to_another_pod(world, monkeypatch, spec):
    leader, job = await created_unseen(world, **spec)
    first = list(world.server.living)
    for path in first:
        world.server.drop(POD, path)
    leader.deaf = False
    world.server.runs = True
    monkeypatch.setattr(created_pods, "PATIENCE", 0.0)
    await world.until(lambda: ended(world, job))
    assert world.status(job)["state"] == "Completed"
    assert not set(first) & set(world.server.living)


async def test_one_that_is_there_is_waited_for(world, monkeypatch):
    leader, job = await created_unseen(world)
    monkeypatch.setattr(created_pods, "PATIENCE", 0.0)
    many = len(world.server.pods)
    world.server.runs = True
    leader.hears()
    for pod in list(world.server.living.values()):
        world.server.run(pod)
        world.server.succeed(pod)
    await world.until(lambda: ended(world, job))
    assert len(world.server.pods) == many
