"""Stories of guest jobs on a modelled cluster."""

from guest_world import World, guest


def test_a_job_fills_all_nodes_and_each_unit_is_done_once():
    world = World(nodes=4)
    world.apply(guest(units=400))
    took = world.until_done()
    world.check()
    assert world.records["g1"].completed.total == 400
    assert world.used["g1"] == 400.0
    assert took < 400 / 4 * 1.5
