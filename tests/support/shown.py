"""A leader's state for the page: real Pools in this process, with as many nodes, jobs and reservations as asked."""

import math
import random

from punctual.kube import api
from punctual.kube.known.jobs import JobInTerm, KnownJob, Owner
from punctual.kube.known.rates import KnownRate
from punctual.kube.known.reservations import KnownReservation
from punctual.kube.page.model import Reading
from punctual.reservations.windows import ReservationWindow
from punctual.scheduling.model.events import JobApplied, NodeObserved, PoolApplied, ReservationApplied
from punctual.scheduling.model.job import Job
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.pool import Pool
from punctual.theory.cost import Cost


class Shown:
    """Pools that are told of jobs, and what a page reads of them. ``now``: the time of the last step."""

    def __init__(self, now=1000.0):
        self.now = now
        self._pools, self._jobs, self._reservations, self._rates = {}, {}, {}, {}

    def pool(self, name, *, nodes, processors, **spec):
        """Begin a pool with equal nodes."""
        pool = self._pools[name] = Pool(1)
        pool.restore(self.now, [PoolApplied(PoolSpec(name=name, cpu=1.0, margin=0.0, headroom=0.0, **spec), None)])
        seen = [
            NodeObserved(name=f"{name}-{i:03}", ready=True, cpu=float(processors), memory=1 << 40, pods=110)
            for i in range(nodes)
        ]
        self._settle(pool, seen)
        return self

    def job(self, namespace, name, *, pool="main", units=10, deadline=1000.0, chi=10.0, most=1):
        """Apply a job with a cost; return its uid."""
        uid = f"{namespace}-{name}"
        job = Job(
            uid=uid, namespace=namespace, name=name, arrival=self.now, units=units, deadline=self.now + deadline,
            cost=Cost(chi, 0.0, 0.0, 1.0), max_processors=most,
        )  # fmt: skip
        owner = Owner(uid, namespace, name, pool, units)
        self._jobs[uid] = KnownJob(owner, 1, False, "", "", b"{}", "1", created=self.now, term=JobInTerm(job=job))
        self._settle(self._pools[pool], [JobApplied(job, None)])
        return uid

    def guest(self, namespace, name, record, *, pool="main", units=100):
        """Show a job without a deadline, which no Pool knows; return its uid."""
        uid = f"{namespace}-{name}"
        job = Job(uid=uid, namespace=namespace, name=name, arrival=self.now, units=units, cost=None,
                  deadline=math.inf)  # fmt: skip
        owner = Owner(uid, namespace, name, pool, units)
        self._jobs[uid] = KnownJob(
            owner, 1, False, "", "", b"{}", "1", created=self.now, term=JobInTerm(job=job, record=record)
        )
        return uid

    def reserve(self, namespace, name, *, pool="main", start=600.0, length=300.0, processors=2):
        """Book a reservation; return its uid."""
        uid, begin = f"{namespace}-{name}", self.now + start
        window = Reservation(uid=uid, arrival=self.now, start=begin, end=begin + length, processors=processors)
        meta = api.Metadata(name=name, namespace=namespace, uid=uid, creation_timestamp=self.now)
        known = KnownReservation(meta, pool, None, "", deleting=False)
        known.term.windows.by_name[uid] = ReservationWindow(begin, begin + length, "Booked")
        self._reservations[uid] = known
        self._settle(self._pools[pool], [ReservationApplied(window)])
        return uid

    def rate(self, namespace, name, **status):
        """Add a TargetRate with a status; return its uid."""
        uid = f"{namespace}-{name}"
        meta = api.Metadata(name=name, namespace=namespace, uid=uid, generation=1, creation_timestamp=self.now)
        selector = api.LabelSelector(match_labels={"app": name})
        spec = api.TargetRateSpec(pool="main", selector=selector, rate=0.4)
        known = KnownRate(meta, spec, "", deleting=False)
        known.term.status = {"observedGeneration": 1, **status}
        self._rates[uid] = known
        return uid

    def later(self, seconds):
        """Let some time pass."""
        self.now += seconds
        for pool in self._pools.values():
            self._settle(pool, [])

    def forget(self, uid):
        """Forget a job: it is deleted."""
        del self._jobs[uid]

    def read(self):
        """Return what the page shows now."""
        pools = {n: p.view() for n, p in self._pools.items()}
        return Reading(self.now, pools, self._jobs, self._reservations, self._rates)

    def _settle(self, pool, events):
        pool.step(self.now, events)
        while pool.backlog:
            pool.step(self.now, [])
        view = pool.view()
        for uid in view.jobs:
            if uid in self._jobs:
                self._jobs[uid].term.record = view.record(uid)


def crowd(*, jobs, nodes, seed=1):
    """Return a full pool: jobs of three namespaces with deadlines that most of them get."""
    rng = random.Random(seed)
    shown = Shown().pool("main", nodes=nodes, processors=4)
    for i in range(jobs):
        load = rng.randint(5, 60)
        shown.job(f"team-{i % 3}", f"job-{i:04}", units=load, most=rng.choice([1, 1, 2, 4]),
                  deadline=20.0 * load + rng.uniform(60, 4000))  # fmt: skip
    return shown
