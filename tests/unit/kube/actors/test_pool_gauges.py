"""Gauges of a led pool that are read at each scrape."""

from types import SimpleNamespace

from term_tools import make_tools

from punctual.kube.actors.actors import PoolActors
from punctual.kube.metrics import Metrics
from punctual.scheduling.model.events import JobApplied, NodeObserved, PoolApplied, ReservationApplied
from punctual.scheduling.model.job import Job
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.pool import Pool
from punctual.theory.cost import Cost


def shown(metrics):
    """Return the pool's gauges by name, without the prefix."""
    lines = (line for line in metrics.text().decode().splitlines() if '{pool="main"}' in line)
    return {name.partition("{")[0].removeprefix("punctual_"): float(value) for name, value in map(str.split, lines)}


async def test_a_scrape_shows_what_processors_do_and_will_do():
    now, metrics, pool = 100.0, Metrics(), Pool(1)
    tools = make_tools(None, lambda: now, metrics=metrics)
    actors = PoolActors(lambda: pool, tools, None, SimpleNamespace(spawn=lambda work: work.close()))
    actors.start("main", ())
    idle = shown(metrics)
    assert (idle["processors_running"], idle["free_until_timestamp_seconds"]) == (0, 0)
    window = Reservation(uid="r", arrival=now, start=200.0, end=300.0, processors=2, group="night")
    cost = Cost(1.0, theta_cp=1.0)
    common = {"arrival": now, "cost": cost, "namespace": "ns"}
    inside = Job(uid="in", name="in", units=120, deadline=280.0, reservation="night", **common)
    works = Job(uid="out", name="out", units=10, deadline=180.0, **common)
    node = NodeObserved(name="n", ready=True, cpu=4.0, memory=2**40)
    pool.step(now, [PoolApplied(PoolSpec(name="main", cpu=1.0)), node, ReservationApplied(window)])
    pool.step(now, [JobApplied(inside), JobApplied(works)])
    found = shown(metrics)
    assert found["processors_running"] == 4 - pool.view().free > 0
    assert found["processors_promised"] == len({piece.place for piece in pool.view().planned("in")}) > 0
    assert 200.0 <= found["free_until_timestamp_seconds"] < 201.0
    assert (found["processors_reserved"], found["reservation_begin_timestamp_seconds"]) == (0, 200.0)
    now = 210.0
    found = shown(metrics)
    assert (found["processors_reserved"], found["reservation_begin_timestamp_seconds"]) == (2, 0)
    metrics.forget_pool("main")
    assert not shown(metrics).keys() & {"processors_running", "mailbox_depth"}
