"""Park and Humphrey: steps of their program BLAST under their gains and ours, and their week of jobs, simulated.

The paper does not tell the levels of its references, nor how its node's jobs behave; ours are in docs/experiments.md.
"""

import random
from dataclasses import dataclass
from statistics import fmean

from paper_node import BLAST, SETTINGS, outcome

from figures.draw import COLOURS, legend, sheet
from figures.figure import Figure, Found, Key, Numbers, Sim, Size, cell, table
from punctual.control.adaptive import Adaptive
from punctual.control.follow import Line
from punctual.control.governor import Sample
from punctual.control.model import Model
from punctual.control.pi import PI, Gains
from punctual.sim.plants.regimes import searched

ALPHA, NOISE, BAND = 0.85, 0.05, 0.05
COURSE = ((0, 3.0), (70, 6.0), (140, 4.0))
"""References of figure 5, units a second; the paper's levels are not in the text."""
END = 210
OURS = "ours"
GAINS = {"aggressive": (0.012, 0.018), "slow": (0.0016, 0.0024), "good": (0.005, 0.007)}


class Theirs:
    """PI (15) on the filtered measurement (16), in cores."""

    def __init__(self, gains: Gains) -> None:
        self.pi = PI(gains, output=0.0, low=0.0, high=1.0)
        self.reference = self.filtered = 0.0

    def wish(self, reference: float) -> float:
        self.reference = reference
        return self.pi.output

    def observe(self, progress: float, cap: float) -> None:
        del cap
        self.pi.step(self.reference - self.filtered)
        self.filtered = ALPHA * self.filtered + (1.0 - ALPHA) * progress


class Agent:
    """The agent's governor; its line is always the reference."""

    def __init__(self) -> None:
        self.line = Line(1.0, 1.0)
        self.governor = Adaptive(self.line, 0.0, 1.0, Model.first_order(*BLAST))

    def wish(self, reference: float) -> float:
        self.line.units, self.line.seconds = 1000.0 * reference, 1000.0
        if self.governor.untuned is not None:
            self.governor.adopt(searched(self.governor.untuned, NOISE))
        return self.governor.wish().cap

    def observe(self, progress: float, cap: float) -> None:
        self.governor.observe(Sample(1.0, progress, cap, cap))


@dataclass(frozen=True)
class Steps:
    """Figure 5: BLAST while its reference changes twice."""

    control: str

    def run(self, seed: int, size: Size) -> Numbers:
        """Simulate it."""
        del size
        rng, (a, b) = random.Random(f"steps/{seed}"), BLAST
        control = Agent() if self.control == OURS else Theirs(Gains(*GAINS[self.control]))
        progress, caps, away = [0.0], [], []
        expected = 0.0
        for k in range(END):
            reference = [level for at, level in COURSE if at <= k][-1]
            caps.append(control.wish(reference))
            before = a * progress[-1] + b * caps[-1]
            expected = a * expected + b * caps[-1]
            progress.append(before * (1.0 + NOISE * rng.gauss(0.0, 1.0)))
            away.append(expected / reference - 1.0)
            control.observe(progress[-1], caps[-1])
        return {"progress": progress[1:], "cap": caps, **judged(away)}

    def weight(self, size: Size) -> float:
        """Guess."""
        del size
        return 0.1


def judged(away: list[float]) -> dict[str, float]:
    """Return the mean periods until it stays in its band after a change, and the largest swing beyond the reference."""
    settling, beyond = [], []
    for (at, level), (end, _), before in zip(
        COURSE, (*COURSE[1:], (END, 0.0)), (0.0, *(c[1] for c in COURSE)), strict=False
    ):
        part = away[at:end]
        settling.append(max((k + 1 for k, one in enumerate(part) if abs(one) > BAND), default=0))
        beyond.append(max([0.0, *(one if level > before else -one for one in part)]))
    return {"settling": fmean(settling), "beyond": max(beyond)}


def _points5(size: Size) -> dict[Key, Sim]:
    del size
    return {Key("BLAST", name, 0.0): Steps(name) for name in (*GAINS, OURS)}


def _words5(found: Found) -> str:
    rows = []
    for name in (*GAINS, OURS):
        settling, beyond = (found.mean("BLAST", name, 0.0, key) for key in ("settling", "beyond"))
        kp_ki = " Kp = {}, Ki = {}".format(*GAINS[name]) if name in GAINS else ""
        rows.append([f"{name}{',' if kp_ki else ''}{kp_ki}", settling, 100 * beyond])
    head = ["controller", "periods until it stays in its band", "beyond the reference, %"]
    return (
        "the band is 5 % around the reference, judged on the expected progress (without its noise); means over the "
        f"start and both changes.\n\n{table(head, rows)}"
    )


def _draw5(found: Found) -> object:
    figure, axes = sheet(2, 4, width=2.3, height=2.0)
    for column, name in enumerate((*GAINS, OURS)):
        run = found.points[Key("BLAST", name, 0.0)][0]
        times = range(1, END + 1)
        levels = [[level for at, level in COURSE if at < k][-1] for k in times]
        axes[0][column].plot(times, levels, color="#777777", linestyle=":", label="reference")
        axes[0][column].plot(times, run["progress"], color=COLOURS[0], linewidth=1.0, label="progress")
        axes[1][column].plot(times, run["cap"], color=COLOURS[1], linewidth=1.0, label="cap")
        axes[0][column].set_title(name)
        axes[1][column].set_xlabel("s")
    axes[0][0].set_ylabel("units a second")
    axes[1][0].set_ylabel("cores")
    legend(figure, axes)
    return figure


CONTROLS = {
    OURS: {"control": "adaptive"},
    "published, early lines": {"control": "published"},
    "published, as printed": {"control": "published", "lines": "deadline"},
    "no control": {"control": "none"},
    "EDF, whole cores": {"control": "edf-cores"},
}
PRINTED = {
    "compute_2_10": "90.4, 12.4",
    "mixed_2_10": "80.9, 14.7",
    "compute_1_4": "86",
    "mixed_1_4": "76",
    "mixed_1_3": "64.3, 13.7 and 21.5; EDF 54.8",
}
BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True)
class Week:
    """42 jobs on 8 cores, 7 of them promised, of which 14 are in memory at most."""

    setting: str
    control: str

    def run(self, seed: int, size: Size) -> Numbers:
        """Simulate it."""
        del size
        found = outcome(BY_NAME[self.setting], seed, **CONTROLS[self.control])
        late = found["late"]
        return {
            "deadline": [deadline / 3600.0 for deadline, _ in found["ratios"]],
            "ratio": [ratio for _, ratio in found["ratios"]],
            "met": found["met_ratio"],
            "late": fmean(late) if late else 0.0,
            "late_jobs": float(len(late)),
            "hours": found["makespan"] / 3600.0,
        }

    def weight(self, size: Size) -> float:
        """Guess."""
        del size
        return 0.3


def _points8(size: Size) -> dict[Key, Sim]:
    del size
    return {Key(setting, control, 0.0): Week(setting, control) for setting in BY_NAME for control in CONTROLS}


def _words8(found: Found) -> str:
    rows = []
    for name, setting in BY_NAME.items():
        kind = "mixed" if setting.mixed else "compute-bound"
        cells = []
        for control in CONTROLS:
            runs = found.points[Key(name, control, 0.0)]
            jobs = sum(run["late_jobs"] for run in runs)
            late = sum(run["late"] * run["late_jobs"] for run in runs) / jobs if jobs else 0.0
            met, hours = [100 * run["met"] for run in runs], [run["hours"] for run in runs]
            cells.append(f"{cell(met)}, {100 * late:.1f}, {cell(hours)} h")
        rows.append([f"{kind}, {setting.low:g} to {setting.high:g}", PRINTED.get(name, ""), *cells])
    return (
        "each cell has the deadlines met and by how much late jobs are late, in percent, and the time until all have "
        "ended; in brackets the least and the highest of the seeds. With accepted jobs and the CPU given: "
        "[experiments](experiments.md#simulated).\n\n"
        f"{table(['jobs, run times to the deadline', 'the paper measured', *CONTROLS], rows)}"
    )


def _draw8(found: Found) -> object:
    figure, axes = sheet(1, 2, width=3.6, height=3.0, share=False)
    for axis, (name, title) in zip(axes[0], (("compute_2_10", "compute-bound"), ("mixed_2_10", "mixed")), strict=True):
        for control, colour, marker in zip(CONTROLS, COLOURS, "os^", strict=False):
            run = found.points[Key(name, control, 0.0)][0]
            axis.plot(run["deadline"], run["ratio"], marker, color=colour, label=control, markersize=3.5)
        axis.axhline(1.0, color="#777777", linestyle=":", linewidth=1)
        axis.set_ylim(0.0, 1.1)
        axis.set_title(f"{title}, 2 to 10 run times")
        axis.set_xlabel("deadline, h")
    axes[0][0].set_ylabel("time taken, of the deadline")
    legend(figure, axes)
    return figure


FIGURES = (
    Figure(
        name="progress.5",
        title="A reference that changes (Park and Humphrey, figure 5)",
        parameters="BLAST, P(k) = 0.32 P(k−1) + 6.38 C(k−1), noise of 5 %, α = 0.85; references of 3, 6 and 4 units a "
        "second, which the text does not tell",
        published="the aggressive gains oscillate, the slow ones take long, the good ones are between them",
        points=_points5,
        words=_words5,
        draw=_draw5,
        alt="Progress and caps under aggressive, slow and good gains of the paper and under ours, beside the reference",
    ),
    Figure(
        name="progress.8",
        title="Jobs that meet their deadlines (Park and Humphrey, figures 7 and 8, table 4)",
        parameters="8 cores, 7 of them promised, 14 slots, 42 jobs of 0.5 to 2 hours, refused jobs ask again; what the "
        "text does not tell is in [experiments](experiments.md#jobs-on-one-node)",
        published="see the table; a real node with unknown disturbances",
        points=_points8,
        words=_words8,
        draw=_draw8,
        alt="Time taken by each job over its deadline, with our control, the published one and its lines as printed",
    ),
)
