"""Pods on lines, told as stories: the progress of programs follows their CPU, on a modelled node."""

from dataclasses import dataclass, field

import pytest

from punctual.wire import LineOrder, ResponseModel, SetPoint
from punctual_agent.steering import Steering


@dataclass
class Program:
    """A program with one thread: it computes a unit in ``cost`` CPU seconds, at a speed that the story changes."""

    units: int
    cost: float
    planned: float
    own: float = 1.0
    """Cap of its set point."""
    ceiling: float | None = None
    threads: float = 8.0
    speed: float = 1.0
    due: float | None = None
    starts: float = 0.0
    paces: float = 0.0
    """Units that it does in a second by waiting, whatever its CPU; 0: its CPU does them."""
    done: float = 0.0
    cpu: float = 0.0
    ended: float | None = None


@dataclass
class Node:
    """A node with the processors of one pool, and the agent's steering."""

    programs: dict[str, Program]
    cores: float
    steering: Steering = field(default_factory=Steering)
    caps: dict[str, float] = field(default_factory=dict)
    now: float = 0.0
    bound: dict[str, float] = field(default_factory=dict)
    """Part of the CFS periods in which a program used up its cap."""
    given: float = 1.0
    """Part of a cap that the kernel gives."""
    presses: bool = False
    """Tasks wait for CPU at any time: the kernel counts those that their own caps hold back."""
    there: float = 100.0
    """CPU that the node really has for them."""
    noise: float = 0.0
    """Pressure from other programs, which take nothing from them."""

    def point(self, name):
        one = self.programs[name]
        sample = max(1.0, min(10 * one.cost / one.own, one.planned / 40, 60.0))
        left = one.planned - self.now - max(3 * sample, 0.02 * one.planned)
        model = ResponseModel(a=0.0, b=sample / one.cost)
        follow = LineOrder(
            pool="main",
            pool_cores=self.cores,
            units=one.units,
            seconds_left=left,
            floor=0.05 * one.own,
            ceiling=one.ceiling,
            due_seconds_left=None if one.due is None else one.due - self.now,
            sample=sample,
            model=model,
        )
        return SetPoint(uid=name, cap=one.own, rest_cap=one.own, mode=follow)

    def run(self, seconds, *, operator=True):
        """Let seconds pass. Returns the least cap of each program meanwhile, relative to its processor."""
        least = {}
        for _ in range(round(seconds)):
            self.second(operator=operator)
            for name, cap in self.caps.items():
                least[name] = min(least.get(name, 9.0), cap / self.programs[name].own)
        return least

    def second(self, *, operator=True):
        running = {name: one for name, one in self.programs.items() if one.ended is None}
        for name, one in running.items():
            if operator:
                self.steering.tell(name, self.point(name), self.now)
            self.steering.look(
                name,
                self.now,
                done=int(one.done + 1e-9),
                cpu=one.cpu,
                cap=self.caps.get(name),
                bound=self.bound.get(name),
            )
        wanted = {name: min(self.caps.get(name, 0.0), one.threads) for name, one in running.items()}
        pressure = 50.0 if self.presses or sum(wanted.values()) > self.there else 0.0
        self.caps = self.steering.caps(self.now, max(pressure, self.noise))
        assert sum(self.caps.values()) <= self.cores * (1 + 1e-9)
        self.now += 1.0
        fair = shared(
            {name: min(self.given * self.caps[name], one.threads) for name, one in running.items()}, self.there
        )
        self.bound = {name: float(fair[name] >= self.given * self.caps[name] - 1e-9) for name in running}
        for name, one in running.items():
            used = fair[name] if self.now > one.starts else 0.0
            one.cpu += used
            before, one.done = one.done, one.done + (one.paces or used * one.speed / one.cost)
            if one.done >= one.units - 1e-9:
                one.ended = self.now - (one.done - one.units) / (one.done - before)
                self.steering.forget(name)


def shared(wanted, there):
    """What the kernel gives programs of equal weight: nothing more than they want, and else equal parts."""
    given, left = {}, there
    for n, (name, most) in enumerate(sorted(wanted.items(), key=lambda item: item[1])):
        given[name] = min(most, left / (len(wanted) - n))
        left -= given[name]
    return given


def chunk(**more):
    """A chunk of 600 units, planned with the usual headroom: on a whole processor it takes 525 s."""
    return Program(**({"units": 600, "cost": 0.875, "planned": 600.0} | more))


def test_alone_a_chunk_has_its_processor_whatever_its_line_needs():
    node = Node({"a": chunk()}, cores=1.0)
    node.run(500)
    assert node.caps["a"] == pytest.approx(1.0)
    node.run(100)
    assert node.programs["a"].ended == pytest.approx(525.0, abs=1.5)


def test_a_slowed_chunk_gets_what_those_ahead_do_not_need():
    node = Node({"slow": chunk(), **{f"c{n}": chunk() for n in range(3)}}, cores=4.0)
    node.run(100)
    node.programs["slow"].speed = 0.75  # 12.5 % of headroom do not suffice for it
    node.run(550)
    for name, one in node.programs.items():
        assert one.ended is not None, name
        assert one.ended <= 600.0, name


def test_without_control_it_would_have_been_late():
    one = chunk()
    whole = 100.0 / one.cost
    assert 100.0 + (one.units - whole) * one.cost / 0.75 > 640.0


def test_a_program_of_one_thread_takes_nothing_that_it_cannot_use():
    node = Node({"slow": chunk(threads=1.0, speed=0.5), **{f"c{n}": chunk() for n in range(3)}}, cores=4.0)
    node.run(600)
    assert node.programs["slow"].ended is None
    for n in range(3):
        assert node.programs[f"c{n}"].ended == pytest.approx(525.0, rel=0.1)


def test_a_chunk_that_still_starts_is_not_slow():
    node = Node({"a": chunk(starts=30.0), "b": chunk()}, cores=2.0)
    node.run(31)
    assert node.caps == pytest.approx({"a": 1.0, "b": 1.0}, rel=0.05)


def test_while_the_operator_is_away_lines_are_kept():
    node = Node({"slow": chunk(), **{f"c{n}": chunk() for n in range(3)}}, cores=4.0)
    node.run(50)
    node.programs["slow"].speed = 0.75
    node.run(600, operator=False)
    assert all(one.ended is not None and one.ended <= 600.0 for one in node.programs.values())


def test_a_new_agent_goes_on_without_a_bump():
    node = Node({"slow": chunk(speed=0.7), **{f"c{n}": chunk() for n in range(3)}}, cores=4.0)
    node.run(300)
    before = dict(node.caps)
    report = node.steering.report("slow", node.now)
    assert report.needed == pytest.approx(before["slow"], rel=0.25)
    node.steering = Steering()
    node.run(60)
    assert node.caps["slow"] == pytest.approx(before["slow"], rel=0.25)


@pytest.mark.parametrize("units", [1, 5, 39])
def test_of_few_units_cpu_time_shows_the_progress(units):
    slow = Program(units=units, cost=525.0 / units, planned=600.0, speed=1.0)
    node = Node({"few": slow, **{f"c{n}": chunk() for n in range(3)}}, cores=4.0)
    node.run(600)
    assert slow.ended <= 600.0


def test_a_chunk_that_cannot_be_in_time_says_since_when():
    node = Node({"a": chunk(speed=0.3)}, cores=1.0)
    node.run(200)
    told = node.steering.report("a", node.now)
    assert told.needed > 1.0
    assert 100.0 < told.saturated_seconds < 200.0
    node.programs["a"].speed = 3.0
    node.run(120)
    assert node.steering.report("a", node.now).saturated_seconds == 0.0


def test_a_pod_without_a_line_is_not_steered():
    node = Node({"a": chunk()}, cores=1.0)
    node.second()
    node.steering.tell("a", SetPoint(uid="a", cap=0.5, rest_cap=0.9), 2.0)
    assert node.steering.caps(2.0) == {}
    assert node.steering.report("a", 2.0) is None


@pytest.mark.parametrize("lie", [0, 10**6, 300])
def test_progress_that_lies_moves_no_cap_out_of_its_range(lie):
    node = Node({"a": chunk(), "b": chunk()}, cores=2.0)
    node.run(50)
    node.programs["a"].done = lie
    node.run(20)
    assert all(0.05 <= cap <= 2.0 for cap in node.caps.values())


def test_a_clock_that_is_set_back_is_survived():
    node = Node({"a": chunk(), "b": chunk()}, cores=2.0)
    node.run(50)
    node.now -= 40.0
    node.run(100)
    assert sum(node.caps.values()) == pytest.approx(2.0, rel=0.05)


def halved():
    """Two urgent chunks, and two with twice the time: on half a node, there is enough for the urgent ones only."""
    relaxed = {f"r{n}": chunk(planned=1400.0) for n in range(2)}
    return Node({**{f"u{n}": chunk() for n in range(2)}, **relaxed}, cores=4.0)


def test_on_a_node_that_is_suddenly_half_as_fast_the_urgent_chunks_are_slowed_last():
    node = halved()
    node.run(100)
    node.there = 2.0
    node.run(300)
    node.there = 4.0
    node.run(1000)
    ended = {name: one.ended for name, one in node.programs.items()}
    assert all(ended[name] is not None and ended[name] <= one.planned for name, one in node.programs.items()), ended


def test_of_chunks_with_equal_lines_those_of_jobs_with_time_are_slowed_first():
    relaxed = {f"r{n}": chunk(due=2000.0) for n in range(2)}
    node = Node({**{f"u{n}": chunk(due=610.0) for n in range(2)}, **relaxed}, cores=4.0)
    node.run(100)
    node.there = 2.0
    node.run(300)
    node.there = 4.0
    node.run(1000)
    for one in node.programs.values():
        assert one.ended is not None
        assert one.ended <= one.due


def test_on_half_a_node_urgent_chunks_lose_little_and_no_cpu_is_left_over():
    long = {"units": 100_000, "planned": 1e5}
    urgent, relaxed = (
        {f"{kind}{n}": chunk(**long, due=due) for n in range(3)} for kind, due in (("u", 1e5), ("r", 2e5))
    )
    node = Node(urgent | relaxed, cores=6.0)
    node.run(60)
    before = sum(one.cpu for one in urgent.values())
    for _ in range(5):
        node.there = 3.0
        node.run(30)
        node.there = 6.0
        node.run(30)
    given = sum(one.cpu for one in urgent.values()) - before
    assert given > 0.93 * 3 * 0.875 * 300
    assert sum(one.cpu for one in node.programs.values()) > 60 * 6 + 0.95 * (150 * 3 + 150 * 6)


def test_a_chunk_that_needs_more_than_its_processor_is_not_given_up_on_a_node_that_is_short_of_cpu():
    behind = chunk(speed=0.85, due=610.0)  # it needs 1.03
    node = Node({"behind": behind, **{f"c{n}": chunk(due=2000.0) for n in range(3)}}, cores=4.0)
    node.run(30)
    node.there = 2.5
    node.run(600)
    assert behind.ended is not None
    assert behind.ended <= behind.due


def test_a_pod_that_waits_for_a_disk_and_is_late_takes_no_cpu_from_others_that_would_stay_idle():
    disk = chunk(threads=0.6, due=600.0)  # it needs 0.875
    node = Node({"disk": disk, **{f"c{n}": chunk(due=2000.0) for n in range(3)}}, cores=4.0)
    node.presses = True
    node.run(60)
    node.there = 2.0
    node.run(30)
    node.there = 100.0
    before = sum(one.cpu for name, one in node.programs.items() if name != "disk")
    node.run(300)
    assert sum(one.cpu for name, one in node.programs.items() if name != "disk") - before > 0.85 * 3 * 300


def test_a_kernel_that_gives_less_than_the_caps_makes_no_shortage():
    node = Node({f"c{n}": chunk(units=60_000, planned=6e4) for n in range(4)}, cores=4.0, given=0.6)
    node.run(20)
    node.there = 2.0  # tasks wait for CPU
    node.run(30)
    node.there = 2.5
    node.run(120)
    assert sum(node.caps.values()) == pytest.approx(4.0, rel=0.05)


def test_a_chunk_behind_its_line_whose_job_has_time_is_not_given_up():
    late = chunk(planned=300.0, due=900.0)
    node = Node({"late": late, **{f"c{n}": chunk(due=2000.0) for n in range(3)}}, cores=4.0)
    node.run(20)
    node.there = 2.0
    node.run(380)
    assert late.ended is not None or node.caps["late"] > 1.0


def test_without_control_the_urgent_chunks_would_have_been_late():
    done = 100.0 / 0.875 + 300.0 * 0.5 / 0.875
    assert 400.0 + (600 - done) * 0.875 > 600.0


def test_what_a_node_gets_back_is_used_again():
    node = halved()
    node.run(100)
    node.there = 1.0
    node.run(60)
    assert sum(node.caps.values()) < 1.5
    node.there = 4.0
    node.run(90)
    assert sum(node.caps.values()) == pytest.approx(4.0, rel=0.05)


def test_a_pod_that_waits_for_a_disk_takes_no_cpu_from_a_node_that_is_not_pressed():
    node = Node({"disk": chunk(threads=0.2), "a": chunk()}, cores=2.0)
    node.run(100)
    assert node.caps["a"] == pytest.approx(1.0, rel=0.05)
    assert sum(node.caps.values()) == pytest.approx(2.0, rel=0.05)


LEARNED = ResponseModel(a=0.6, b=0.4 * 4.0 / 0.875, delay=1, learned=True)


def told(node, model, **more):
    """What the operator sends to chunk "a", with a model of samples of four seconds."""
    point = node.point("a")
    return point.model_copy(update={"mode": point.mode.model_copy(update={"sample": 4.0, "model": model, **more})})


def test_a_chunk_goes_on_with_what_other_chunks_have_shown():
    node = Node({"a": chunk()}, cores=1.0)
    node.steering.tell("a", told(node, LEARNED, noise=0.02), node.now)
    report = node.steering.report("a", node.now)
    assert (report.sample, report.samples, report.noise) == (4.0, 0, 0.02)
    assert report.model.model_dump() == pytest.approx(LEARNED.model_dump())
    node.run(62, operator=False)
    report = node.steering.report("a", node.now)
    assert (report.sample, report.samples) == (4.0, 14), "the first one only joins"
    assert report.model.learned, "it is still believed"
    assert report.noise < 0.05


def test_what_is_learned_while_a_pod_starts_is_what_it_begins_with():
    node = Node({"a": chunk(starts=30.0)}, cores=1.0)
    node.run(20)
    assert not node.steering.report("a", node.now).model.learned
    node.steering.tell("a", told(node, LEARNED), node.now)
    assert node.steering.report("a", node.now).model.learned
    node.run(20, operator=False)
    node.steering.tell("a", told(node, ResponseModel(a=0.0, b=1.0)), node.now)
    assert node.steering.report("a", node.now).model.learned, "by now it knows more than the operator"


def test_a_model_is_of_the_samples_in_which_it_counts_whatever_the_line_says_later():
    node = Node({"a": chunk(), "b": chunk()}, cores=2.0)
    node.run(300)
    before = node.steering.report("a", node.now)
    node.steering.tell("a", told(node, LEARNED), node.now)
    after = node.steering.report("a", node.now)
    assert (after.sample, after.model) == (before.sample, before.model)
    gain = after.model.b / (1.0 - after.model.a) / after.sample
    assert gain == pytest.approx(1.0 / 0.875, rel=0.05), "units a second and core"


def sleeper(pace, *, use=0.03, **more):
    """A chunk that mostly waits: of a processor it uses ``use``; ``pace``: units per second, relative to its line."""
    own = more.get("own", 1.0)
    return chunk(threads=use * own, paces=pace * 600 / 525, **more)


@pytest.mark.parametrize("noise", [0.0, 50.0])
@pytest.mark.parametrize("use", [0.01, 0.3, 0.8])
@pytest.mark.parametrize("pace", [0.7, 0.9, 1.0, 2.5])
def test_a_chunk_that_waits_keeps_its_processor_whatever_its_line_needs_and_others_wait_for(pace, use, noise):
    for paces in ([pace], [pace, 1.0, 3.0]):
        programs = {f"w{n}": sleeper(one, use=use) for n, one in enumerate(paces)}
        node = Node(programs, cores=4.0, noise=noise)
        assert node.run(700) == pytest.approx(dict.fromkeys(programs, 1.0))


@pytest.mark.parametrize("noise", [0.0, 50.0])
def test_chunks_that_wait_keep_their_processors_beside_chunks_that_need_no_more_than_theirs(noise):
    programs = {"behind": sleeper(0.8), "ahead": sleeper(2.0, use=0.5), "cpu": chunk(planned=700.0)}
    node = Node(programs, cores=3.0, noise=noise)
    least = node.run(600)
    assert least == pytest.approx(dict.fromkeys(programs, 1.0))


def test_a_chunk_that_waits_leaves_its_cpu_to_one_that_needs_more_and_gets_it_back():
    node = Node({"waits": sleeper(1.0, units=6000, planned=6600.0), "slow": chunk(speed=0.6)}, cores=2.0)
    node.run(200)
    assert node.caps["slow"] > 1.3
    assert node.caps["waits"] < 0.7
    node.run(600)
    assert node.programs["slow"].ended <= 600.0
    assert node.caps == pytest.approx({"waits": 1.0})


def test_on_a_short_node_chunks_that_wait_keep_their_processors_and_the_urgent_ones_are_slowed_last():
    node = halved()
    node.programs["waits"] = sleeper(1.0, units=6000, planned=6600.0)
    node.cores = 5.0
    node.run(100)
    node.there = 2.0
    least = node.run(300)
    assert least["waits"] == pytest.approx(1.0)
    node.there = 4.0
    node.run(1000)
    ended = {name: one.ended for name, one in node.programs.items() if name != "waits"}
    assert all(end is not None and end <= node.programs[name].planned for name, end in ended.items()), ended


def test_a_chunk_that_begins_to_wait_while_another_computes_keeps_its_processor():
    programs = {"phases": chunk(units=6000, planned=6600.0), "other": chunk(units=6000, planned=6600.0)}
    node = Node(programs, cores=2.0, noise=50.0)
    node.run(100)
    programs["phases"].threads = 0.3
    least = node.run(300)
    assert least["phases"] > 0.9  # the other one needs a little more than its own now and then
    assert node.caps["phases"] == pytest.approx(1.0, abs=0.05)


def test_chunks_that_share_a_processor_end_in_time_and_use_all_of_it():
    wanted = {"a": (200, 400.0), "b": (200, 600.0), "c": (100, 900.0)}  # 0.5, 0.33 and 0.11 of it
    programs = {
        name: Program(units, 1.0, planned, own=units / planned, ceiling=1.0, threads=1.0)
        for name, (units, planned) in wanted.items()
    }
    node = Node(programs, cores=1.0)
    node.run(300)
    assert sum(node.caps.values()) == pytest.approx(1.0, abs=0.01)
    node.run(250)
    for name, one in programs.items():
        assert one.ended is not None, name
        assert one.ended <= one.planned, name


def test_a_chunk_gets_no_more_than_its_ceiling():
    one = Program(600, 1.0, 400.0, own=1.0, ceiling=1.0)  # too much for one processor
    node = Node({"a": one}, cores=4.0)
    node.run(200)
    assert node.caps["a"] == pytest.approx(1.0)
    assert node.steering.report("a", node.now).saturated_seconds > 100.0


def test_a_chunk_without_a_time_to_end_uses_what_is_left():
    leftover = Program(600, 1.0, 30 * 86400.0, own=0.02, ceiling=1.0)
    node = Node({"late": leftover, "a": Program(250, 1.0, 300.0, own=0.85, ceiling=1.0)}, cores=1.0)
    node.run(300)
    assert node.programs["a"].ended <= 300.0
    assert leftover.done > 30.0
