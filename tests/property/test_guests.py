"""Guest jobs under everything that happens to them: no unit is lost, none is done twice, and all jobs end."""

from dataclasses import replace

from guest_world import GIB, Manners, World, guest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

POLICIES = ("LingerLonger", "LingerForever", "ImmediateEviction", "PauseAndMigrate")
MANNERS = (
    Manners(),
    Manners(),
    Manners(factor=5.0),
    Manners(factor=0.2),
    Manners(deaf=True),
    Manners(slow_to_answer=4.0),
    Manners(slow_to_answer=20.0),
    Manners(fails_after=3.0),
    Manners(hangs=True),
    Manners(start=1000.0),
)


SOON = st.sampled_from([1, 2, 4, 12])


class GuestMachine(RuleBasedStateMachine):
    """Jobs, nodes, hosts, pods and leaders come and go."""

    @initialize(nodes=st.integers(2, 4), cores=st.sampled_from([1.0, 2.0]), policies=st.permutations(POLICIES))
    def start(self, nodes, cores, policies):
        self.w = World(nodes, cores)
        self.serial = 0
        for restart, policy in zip(("Redo", "Resume"), policies, strict=False):
            self.apply(units=300, cost=1.0, policy=policy, restart=restart, most=None, preview=False)
        self.w.run(20)

    @rule(
        units=st.integers(50, 300),
        cost=st.sampled_from([0.3, 1.0, 7.0]),
        policy=st.sampled_from(POLICIES),
        restart=st.sampled_from(["Redo", "Resume"]),
        most=st.sampled_from([None, 1, 2]),
        preview=st.sampled_from([False, False, True]),
    )
    def apply(self, *, units, cost, policy, restart, most, preview):
        self.serial += 1
        more = {"policy": policy, "restart": restart, "most": most, "preview": preview, "chunk_retries": 1000}
        self.w.apply(guest(f"g{self.serial}", units=units, cpu_per_unit=cost, most_lost=20.0, **more))

    @rule(manners=st.sampled_from(MANNERS))
    def manners_change(self, manners):
        self.w.manners = manners

    @rule(seconds=st.sampled_from([10, 30, 70]))
    def time_passes(self, seconds):
        self.w.run(seconds)

    @rule(n=st.integers(0, 3), use=st.sampled_from([0.9, 0.4, 0.05, 0.0]), raw=st.booleans(), seconds=SOON)
    def host_uses(self, n, use, raw, seconds):
        if host := self.w.hosts.get(f"n{n}"):
            host.use, host.raw = use, raw
        self.w.run(seconds)

    @rule(n=st.integers(0, 3))
    def agent_changes(self, n):
        if host := self.w.hosts.get(f"n{n}"):
            host.silent = not host.silent

    @rule(n=st.integers(0, 3), excess=st.sampled_from([1, 250, GIB]), seconds=SOON)
    def memory_is_short(self, n, excess, seconds):
        self.w.excess[f"n{n}"] = excess
        self.w.run(seconds)
        self.w.excess.clear()

    @rule(n=st.integers(0, 3), schedulable=st.booleans(), seconds=SOON)
    def cordon(self, n, schedulable, seconds):
        if f"n{n}" in self.w.nodes:
            self.w.cordon(f"n{n}", schedulable=schedulable)
        self.w.run(seconds)

    @precondition(lambda self: len(self.w.nodes) > 1)
    @rule(data=st.data())
    def node_vanishes(self, data):
        self.w.vanish(data.draw(st.sampled_from(sorted(self.w.nodes))))

    @precondition(lambda self: any(self.w.running()))
    @rule(data=st.data())
    def pod_is_evicted(self, data):
        running = {pod.name: pod for pod in self.w.running()}
        self.w.kill(running[data.draw(st.sampled_from(sorted(running)))])

    @rule(refuses=st.booleans())
    def quota(self, refuses):
        self.w.refuses = refuses

    @precondition(lambda self: self.w.guests)
    @rule(data=st.data(), change=st.sampled_from(["suspend", "resume", "delete"]), seconds=SOON)
    def edit(self, data, change, seconds):
        uid = data.draw(st.sampled_from(sorted(self.w.guests)))
        if change == "delete":
            self.w.delete(uid)
        else:
            self.w.apply(replace(self.w.guests[uid], suspend=change == "suspend"))
        self.w.run(seconds)

    @rule()
    def leader_crashes(self):
        self.w.crash()

    @rule(part=st.sampled_from([0.0, 0.3, 0.6, 0.9]))
    def leader_is_interrupted(self, part):
        self.w.interrupted(part)

    @rule(lines=st.sampled_from([0, 2]))
    def last_words_are_short(self, lines):
        self.w.last_lines = lines

    @invariant()
    def nothing_is_lost_or_done_twice(self):
        if hasattr(self, "w"):
            self.w.check()

    def teardown(self):
        """With everything well again, all jobs end."""
        if not hasattr(self, "w"):
            return
        self.w.manners, self.w.refuses, self.w.last_lines = Manners(), False, 2
        self.w.excess.clear()
        for host in self.w.hosts.values():
            host.use, host.silent, host.raw = 0.0, False, False
        for name in self.w.nodes:
            self.w.cordon(name, schedulable=True)
        for one in self.w.guests.values():
            self.w.apply(replace(one, suspend=False))
        self.w.until_done(20_000.0)
        self.w.check()


GuestMachine.TestCase.settings = settings(stateful_step_count=30)
TestGuests = GuestMachine.TestCase
