"""The processors that a refused job lacks: with so many more in the pool it is promised, with one fewer it is not."""

from typing import NamedTuple

from hypothesis import assume, event, given
from hypothesis import strategies as st
from world import World, job

from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.pool_spec import PoolSpec

disciplines = st.builds(
    Discipline,
    order=st.sampled_from(["EDF", "FIFO", "MWF"]),
    partition=st.sampled_from(["OPR", "EPR"]),
    assign=st.sampled_from(["MN", "AN"]),
    network=st.sampled_from(["Concurrent", "OnePort"]),
    start=st.sampled_from(["Ready", "Together"]),
)
queues = st.builds(Discipline, network=st.sampled_from(["Concurrent", "OnePort"]))
exact = st.fixed_dictionaries({"discipline": disciplines})
fast = st.fixed_dictionaries({"admission": st.just("Fast"), "discipline": queues})
bound = st.fixed_dictionaries({"bound": st.sampled_from([0.3, 0.8, 1.5]), "discipline": queues})
shared = st.fixed_dictionaries({"admission": st.just("Utilization"), "pods_per_processor": st.integers(1, 4)})
kinds = st.sampled_from([exact, exact, exact, fast, bound, shared]).flatmap(lambda kind: kind)
"""How a pool decides."""
limits = st.fixed_dictionaries({
    "min_processors": st.sampled_from([1, 1, 2]),
    "max_processors": st.sampled_from([None, None, 4]),
    "reduce_duration": st.sampled_from([None, None, 5.0]),
})  # fmt: skip


class Asked(NamedTuple):
    """A job: the processors that it would keep busy until its deadline, the seconds until then, and its limits."""

    part: float
    within: int
    tau: float
    limits: dict

    def job(self, uid: str, now: float):
        units = max(2, round(self.part * self.within))
        return job(uid, units=units, deadline=now + self.within, arrival=now, tau=self.tau, **self.limits)


class Asking(NamedTuple):
    """A pool that is asked for a job behind others."""

    how: dict
    cpus: list[int]
    before: list[Asked]
    pause: float
    last: Asked

    def told(self, more: int = 0) -> World:
        """Return the pool when it has answered; ``more`` processors have joined it just before."""
        w = World(spec=PoolSpec(name="main", cpu=1.0, headroom=0.1, margin=2.0, **self.how))
        for i, cpu in enumerate(self.cpus):
            w.node(f"n{i}", cpu)
        for i, one in enumerate(self.before):
            w.apply(one.job(f"before-{i}", 0.0))
        w.tick()
        w.run(self.pause)
        if more:
            w.node("~", cpu=more)
        w.apply(self.last.job("new", w.now))
        w.tick()
        return w


@st.composite
def askings(draw):
    how = draw(kinds)
    most = 0.8 if how.get("admission") == "Utilization" else 6.0
    asked = st.builds(
        Asked,
        part=st.floats(0.1, most),
        within=st.integers(6, 100),
        tau=st.sampled_from([0.0, 0.0, 0.1]),
        limits=limits if set(how) == {"discipline"} else st.just({}),
    )
    cpus = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    before = draw(st.lists(asked, min_size=1, max_size=8))
    return Asking(how, cpus, before, draw(st.sampled_from([0.0, 3.0, 12.0])), draw(asked))


@given(asking=askings(), other=st.integers(1, 70))
def test_with_so_many_more_the_job_is_promised_and_with_one_fewer_it_is_not(asking, other):
    w = asking.told()
    offer = w.records["new"].offer
    assume(offer is not None and offer.earliest_deadline is not None)
    further = offer.processors
    event(f"{w.pool.view().schedule}: {further and min(further.more, 4)}")
    if further is None:
        assert asking.told(other).records["new"].admitted.status == "False"
        return
    assert w.now - 1.0 < further.start < further.until
    assert asking.told(further.more).records["new"].admitted.status == "True"
    assert asking.told(further.more - 1).records["new"].admitted.status == "False"
