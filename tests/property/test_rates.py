"""Whatever is asked, reported, lost and changed: no pod above its CPU, no slice too short, no node overcommitted."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from punctual.control.rate import QUOTA, Limits
from punctual.rates.control import RateControl
from punctual.rates.model import (
    HoldPod,
    Member,
    MembersSeen,
    MemorySeen,
    PhaseSeen,
    PodsReported,
    RateApplied,
    RateDeleted,
    Record,
    ReleasePod,
    ReportedPod,
    TargetRate,
    WriteRate,
)

UIDS = st.sampled_from("abc")
HAS = {"n0": 1.0, "n1": 3.0}
"""Cores of the nodes."""
NODES = st.sampled_from(tuple(HAS))
PARTS = st.floats(0.001, 1.0)
CORES = st.floats(0.01, 4.0)
MOMENTS = st.floats(-1e10, 1e10)
PHASES = st.none() | st.builds(
    PhaseSeen,
    begins=MOMENTS,
    half=st.floats(0, 1e10),
    error=st.none() | st.floats(-1, 1),
    age=st.floats(0, 1e10),
    moves=st.integers(0, 2**62),
    failed=st.integers(0, 2**62),
)
SIZES = st.integers(0, 2**63 - 1)
MEMORY = st.builds(MemorySeen, SIZES, st.none() | SIZES, st.sampled_from(("pod", "node")))
RECORDS = st.builds(
    Record,
    target=st.none() | PARTS,
    max_rate=st.none() | st.floats(0.01, 1e4),
    utilization=st.none() | PARTS,
    period=st.none() | st.sampled_from((0.025, 0.05, 0.1, 0.8)) | PARTS,
    offset=st.none() | st.sampled_from((0.0, 0.02, 0.05)) | MOMENTS,
)


class Rates(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.control = RateControl()
        self.now = 0.0
        self.held, self.members, self.rates, self.statuses = {}, {}, {}, {}
        self.done = {}

    def step(self, *events):
        for action in self.control.step(self.now, events):
            match action:
                case HoldPod():
                    self.held[action.pod] = action
                case ReleasePod():
                    assert self.held.pop(action.pod).node == action.node
                case WriteRate(uid, status):
                    self.statuses[uid] = status

    @rule(
        uid=UIDS,
        part=PARTS,
        epsilon=st.floats(0.001, 0.5),
        most=PARTS,
        alone=st.none() | st.floats(0.01, 1e4),
        aligned=st.booleans(),
        balanced=st.booleans(),
        max_slice=st.floats(0.001, 0.2),
        record=st.just(Record(0.4, 10.0, 0.41, 0.05, 0.4)) | RECORDS,
    )
    def ask(self, *, uid, part, epsilon, most, alone, aligned, balanced, max_slice, record):
        self.rates[uid] = TargetRate(
            uid=uid,
            name=uid,
            created=ord(uid),
            target=part,
            epsilon=epsilon,
            limits=Limits(min(0.005, most), most),
            max_rate=alone,
            aligned=aligned,
            balanced=balanced,
            max_slice=max_slice,
        )
        self.step(RateApplied(self.rates[uid], record))

    @rule(uid=UIDS, nodes=st.lists(NODES, max_size=4), cpu=CORES, request=CORES, runs=st.booleans())
    def select(self, *, uid, nodes, cpu, request, runs):
        pods = tuple(
            Member(f"{uid}{n}", f"{uid}{n}", node, cpu, request, runs, cores=HAS[node]) for n, node in enumerate(nodes)
        )
        self.members[uid] = pods
        self.step(MembersSeen(uid, pods))

    @rule(
        uid=UIDS,
        part=st.floats(0.05, 0.7),
        nodes=st.lists(NODES, min_size=1, max_size=3),
        cpu=st.sampled_from((0.5, 1.0, 2.0)),
        most=st.sampled_from((0.025, 0.05, 0.1, 0.2)),
        place=st.none() | st.tuples(st.sampled_from((0.025, 0.05, 0.1)), st.sampled_from((0.0, 0.02, 0.05))),
    )
    def align(self, *, uid, part, nodes, cpu, most, place):
        """Ask for what often fits, so that slices meet."""
        record = Record(part, 10.0, part, *place[:1], part, offset=place[1]) if place else Record()
        self.select(uid=uid, nodes=nodes, cpu=cpu, request=cpu, runs=True)
        asked = {"epsilon": 0.03, "alone": 10.0, "aligned": True, "balanced": False, "max_slice": 0.2}
        self.ask(uid=uid, part=part, most=most, record=record, **asked)

    @rule(uid=UIDS)
    def delete(self, uid):
        self.rates.pop(uid, None)
        self.members.pop(uid, None)
        self.statuses.pop(uid, None)
        self.step(RateDeleted(uid))

    @rule(
        node=NODES,
        more=st.integers(-5, 1000),
        written=st.none() | st.floats(0, 100),
        obeys=st.booleans(),
        after=st.floats(0.1, 100),
        phase=PHASES,
        throttled=st.none() | st.floats(0, 1),
        clock=st.none() | st.floats(0, 1e10),
        memory=st.none() | MEMORY,
        load=st.none() | st.floats(0, 5) | st.floats(0, 1e6),
    )
    def report(self, *, node, more, written, obeys, after, phase, throttled, clock, memory, load):
        self.now += after
        lines = []
        for pod, hold in self.held.items():
            self.done[pod] = max(self.done.get(pod, 0) + more, 0)
            cap, period = (hold.cap, hold.period) if obeys else (None, None)
            done = self.done[pod] if written is not None else None
            lines.append(ReportedPod(pod, done, written, cap, period, phase, throttled, memory))
        self.step(PodsReported(node, self.now, tuple(lines), clock, load))

    @invariant()
    def no_pod_is_above_its_cpu_and_no_slice_is_too_short(self):
        cpus = {m.pod: m.cpu for pods in self.members.values() for m in pods}
        for hold in self.held.values():
            assert hold.cap <= cpus[hold.pod] * (1 + 1e-9)
            assert hold.cap * hold.period >= QUOTA * (1 - 1e-9)
            assert 0.001 <= hold.period <= 1.0

    @invariant()
    def the_pods_of_an_application_have_one_share_of_their_cpu(self):
        for uid, pods in self.members.items():
            assert len({(hold.cap, hold.period) for m in pods if (hold := self.held.get(m.pod))}) <= 1, uid

    @invariant()
    def the_status_of_an_application_at_the_floor_keeps_its_pair(self):
        for uid, status in self.statuses.items():
            if uid in self.rates and status.on_target and status.on_target.reason == "MemoryShort":
                assert status.utilization >= status.target / 2 - 1e-9
                assert {h.cap for m in self.members[uid] if (h := self.held.get(m.pod))} <= {QUOTA / status.period}

    @invariant()
    def at_no_moment_slices_on_the_grid_need_more_cores_than_a_node_has(self):
        on_grid = [(hold, self.cpu_of(pod)) for pod, hold in self.held.items() if hold.grid and hold.grid.begins]
        for at, _ in on_grid:
            begins = {round(1e6 * (at.grid.begins + k * at.period)) for k in range(round(0.8 / at.period))}
            there = [(hold, cpu) for hold, cpu in on_grid if hold.node == at.node]
            for begin in begins:
                used = {}
                for hold, cpu in there:
                    period, slice_ = round(1e6 * hold.period), round(1e6 * hold.grid.slice)
                    if (begin + 2 - round(1e6 * hold.grid.begins)) % period < slice_ - 2:
                        used[hold.pod[0]] = used.get(hold.pod[0], 0.0) + cpu
                has = HAS[at.node]
                assert sum(min(cores, has) for cores in used.values()) <= has * (1 + 1e-6)

    def cpu_of(self, pod):
        return next(m.cpu for pods in self.members.values() for m in pods if m.pod == pod)

    @invariant()
    def balanced_pods_have_the_target_and_no_more(self):
        for uid, rate in self.rates.items():
            status = self.statuses.get(uid)
            if rate.balanced and status and status.target is not None:
                assert status.utilization == pytest.approx(status.target)
                assert status.on_target.reason in {"Balanced", "Settling", "NoPods", "CapNotInForce", "MemoryShort"}

    @invariant()
    def what_is_held_is_what_is_known_and_admitted(self):
        members = {m.pod: (uid, m.node) for uid, pods in self.members.items() if uid in self.rates for m in pods}
        for pod, hold in self.held.items():
            uid, node = members[pod]
            assert hold.node == node
            assert self.statuses[uid].target is not None

    @invariant()
    def the_targets_in_force_take_no_more_than_is_requested(self):
        asked, has = {}, {}
        for uid, pods in self.members.items():
            status = self.statuses.get(uid)
            if status is None or status.target is None:
                continue
            for m in pods:
                asked[m.node] = asked.get(m.node, 0.0) + status.target * m.cpu
                has[m.node] = has.get(m.node, 0.0) + m.request
        assert all(cores <= has[node] * (1 + 1e-6) for node, cores in asked.items())


TestRates = Rates.TestCase
TestRates.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
