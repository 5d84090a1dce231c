"""A chunk that is cut short in its transfer frees the port: those behind it move forward, and end when they then do."""

from punctual.scheduling.model.discipline import Discipline
from punctual.sim.options import Options
from punctual.sim.report import Executed, Finished
from punctual.sim.run import simulate
from punctual.sim.trace import FaultLine, JobLine, Trace
from punctual.theory.cost import Cost

COST = Cost(chi=1.0, tau=1.0)
ONE_PORT = Discipline(network="OnePort")


def test_who_waits_for_the_port_ends_earlier_when_the_transfer_before_is_cut_short():
    """Three jobs of 10 s of transfer and 10 s of work, on a processor each; the first one loses its own after 4 s."""
    jobs = [
        JobLine(id=name, arrival=0.0, load=10.0, deadline=due) for name, due in (("a", 45.0), ("b", 50.0), ("c", 60.0))
    ]
    fault = FaultLine(id="f", kind="fault", arrival=4.0, processors=(0,))
    found = simulate(Trace.of([*jobs, fault]), Options(processors=3, cost=COST, discipline=ONE_PORT, offers=False))
    assert [d.promised_finish for d in found.decisions] == [20.0, 30.0, 40.0]
    assert found.chunks[:3] == [
        Executed("a", 0, send_start=0.0, send_end=4.0, end=4.0, load=0.0),
        Executed("b", 1, send_start=4.0, send_end=14.0, end=24.0, load=10.0),
        Executed("c", 2, send_start=14.0, send_end=24.0, end=34.0, load=10.0),
    ]
    assert found.jobs[:2] == [Finished("b", 24.0, met=True), Finished("c", 34.0, met=True)]
