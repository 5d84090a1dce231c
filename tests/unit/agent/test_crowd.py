"""Hundreds of aligned pods that begin at once, on a virtual clock: searches are spread, each costs a few readings."""

from random import Random

from tests.support.period_timer import PeriodTimer

from punctual.control.phase import PhaseControl, Reading, wrap
from punctual_agent.cgroup import Cap
from punctual_agent.phases import FINDS, Phases, Target, _Folder, _grid

PODS = 300


class Crowd(Phases):
    """The thread's steps. Its readings are those of simulated timers, and take some time; it sleeps at once."""

    def __init__(self, pods):
        super().__init__(None, None, clock=lambda: self.now)
        random = Random(7)
        self.now, self.reads, self.most, self._filed = 0.0, 0, 0, False
        self.timers = [PeriodTimer(0.1 * random.random(), 0.1) for _ in range(pods)]
        pair = Cap(30_000)
        targets = {("uid", str(n)): Target(str(n), pair, None, 0.0, 0, runs=True) for n in range(pods)}
        self.follow(targets, may_write=True)
        self._renew()

    def _open(self, key, target):
        self._folders[key] = _Folder(target, PhaseControl(_grid(target)), -1)

    def _sleep(self, seconds):
        self.now += seconds

    def _read(self, one):
        before, self.now = self.now, self.now + 0.00005
        self.reads += 1
        self.most = max(self.most, sum(each.control.searching for each in self._folders.values()))
        return Reading(before, self.now, self.timers[int(one.target.path)].run(self.now))

    @property
    def waiting(self):
        return [one for one in self._folders.values() if one.control.phase is None]


def test_all_are_found_four_at_a_time_and_each_costs_a_few_readings():
    crowd = Crowd(PODS)
    while crowd.waiting and crowd.now < PODS:
        for _ in range(100):
            crowd._step()
    assert not crowd.waiting
    assert crowd.most == FINDS
    looks = 2 * PODS * crowd.now / 10.0
    assert crowd.reads <= 45 * PODS + looks
    for one, timer in zip(crowd._folders.values(), crowd.timers, strict=True):
        phase = one.control.phase
        assert abs(wrap(timer.expiry - phase.at, 0.1)) <= phase.half + 1e-9
