"""Solsona 2002: the simulation of its chapter 4 again, and what its explicit slices are worth on today's kernels.

The stored text ends with chapter 4, and its figures are not in it. So there are orders and letters to compare with, and
the exact values of queues that the model has: LIN is processor sharing with exponential service, and HPDT is a queue
with two preemptive classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from coschedule import one, stations

from figures.draw import COLOURS, MARKERS, curve, legend, sheet, styles
from figures.figure import Figure, Found, Key, Numbers, Sim, Size, table
from punctual.sim.coschedule import table as table41
from punctual.sim.coschedule.scenario import Stations
from punctual.theory.slices import Slices, all_open, spinning_rate

MIT = 10.0
"""Mean interarrival time."""
PARTS = 0.2, 0.5, 0.8
"""Values of pdt."""
QUEUES = 2, 5
"""Values of MRQL."""
MS = 0.001
HALF = Slices(0.05, 0.1)
"""Slices of 50 in 100 ms."""
LATENCY = 0.05 * MS
GRAINS = 1, 5, 20
"""CPU time from one message to the next, ms."""
NODES = 2, 4, 8


@dataclass(frozen=True)
class Served:
    """A cell of figures 4.2 to 4.5, on four stations."""

    policy: str
    mrql: int
    pdt: float
    maxm: int = 3
    mco: int | None = None

    def run(self, seed: int, size: Size) -> Numbers:
        """Simulate it."""
        mco = self.mrql if self.mco is None else self.mco
        tasks = int(10_000 * size.stretch)
        found = stations(self.policy, self.mrql, self.pdt, seed=seed, tasks=tasks, maxm=self.maxm, mco=mco).document()
        return {name: value for name, value in found.items() if name != "served"}

    def weight(self, size: Size) -> float:
        """Guess."""
        return 0.2 * size.stretch / self.pdt


@dataclass(frozen=True)
class Cells:
    """All cells of table 4.1 that a policy has."""

    policy: str

    def run(self, seed: int, size: Size) -> Numbers:
        """Simulate them."""
        base = Stations(tasks=int(10_000 * size.stretch))
        found = table41.codes(self.policy, base, seed)
        return {"code": list(found.values())}

    def weight(self, size: Size) -> float:
        """Guess."""
        return 12.0 * size.stretch


@dataclass(frozen=True)
class Apart:
    """Two ranks, and by how many milliseconds the slices of their nodes begin apart."""

    policy: str
    wait: str
    grain: int
    apart: int

    def run(self, seed: int, size: Size) -> Numbers:
        """Simulate it."""
        del seed
        how = {"policy": self.policy, "wait": self.wait, "grain": self.grain * MS, "duration": 6.0 * size.stretch}
        return {"rate": one(phases=[0.0, self.apart * MS], **how).rate}

    def weight(self, size: Size) -> float:
        """Guess."""
        return 0.1 * size.stretch


@dataclass(frozen=True)
class Phases:
    """Ranks on so many nodes with slices at random phases: the mean rate of many draws."""

    policy: str
    wait: str
    nodes: int
    grain: int

    def run(self, seed: int, size: Size) -> Numbers:
        """Simulate it."""
        how = {"wait": self.wait, "nodes": self.nodes, "grain": self.grain * MS, "duration": 3.0}
        draws = max(2, int(100 * size.stretch))
        rates = [one(seed * draws + n, policy=self.policy, **how).rate for n in range(draws)]
        aligned = one(policy="aligned" if self.policy == "bucket" else "gang", **how).rate
        return {"rate": fmean(rates), "aligned": aligned}

    def weight(self, size: Size) -> float:
        """Guess."""
        return 2.0 * size.stretch


def exact(policy: str, mrql: int, pdt: float) -> dict[str, float]:
    """Return what is exact: LIN is an M/M/1 queue that is shared, HPDT one with two preemptive classes."""
    rho = mrql / (1.0 + mrql)
    mst = MIT * rho
    if policy == "LIN":
        return {"system_code": 1.0 / (1.0 + mrql), "dret": MIT * mrql, "lret": MIT * mrql}
    high = 1.0 - pdt * rho
    return {"system_code": high, "dret": mst / high, "lret": mst / (high * (1.0 - rho))}


def _points2(size: Size) -> dict[Key, Sim]:
    del size
    return {
        Key(f"MRQL {mrql}, maxm {maxm}", policy, pdt): Served(policy, mrql, pdt, maxm)
        for mrql, maxm in ((2, 3), (5, 3), (5, 1))
        for policy in table41.POLICIES
        for pdt in PARTS
    }


def _words2(found: Found) -> str:
    rows = []
    for mrql in QUEUES:
        for pdt in PARTS:
            each = [found.mean(f"MRQL {mrql}, maxm 3", policy, pdt, "system_code") for policy in table41.POLICIES]
            rows.append([f"{mrql}, {pdt:g}", *(f"{code:.3f}" for code in each)])
    beside = []
    for policy in ("LIN", "HPDT"):
        for mrql in QUEUES:
            for pdt in PARTS:
                row = [f"{policy}, {mrql}, {pdt:g}"]
                for name, value in exact(policy, mrql, pdt).items():
                    ours = found.mean(f"MRQL {mrql}, maxm 3", policy, pdt, name)
                    row += [
                        f"{ours:.3f}" if value < 1.0 else f"{ours:.1f}",
                        f"{value:.3f}" if value < 1.0 else f"{value:.1f}",
                    ]
                beside.append(row)
    head = ["policy, MRQL, pdt", "SystemCoDe", "exact", "Dret", "exact", "Lret", "exact"]
    return (
        "SystemCoDe with maxm = 3, and what is exact beside ours. One class gains what the other loses: without "
        "spinning, the mean time of all tasks is the same for all policies. All policies are given the same tasks, so "
        "differences between them are much surer than the values.\n\n"
        f"{table(['MRQL, pdt', *table41.POLICIES], rows)}\n\n{table(head, beside)}"
    )


LOOKS = styles(table41.POLICIES)


def _draw2(found: Found) -> object:
    panels = list(dict.fromkeys(key.panel for key in found.points))
    figure, axes = sheet(2, len(panels), share=False, height=2.3)
    for column, panel in enumerate(panels):
        for policy in table41.POLICIES:
            curve(axes[0][column], found, panel, policy, metric="system_code", look=LOOKS[policy])
            for name, dash in (("dret", "-"), ("lret", ":")):
                colour = LOOKS[policy][0]
                axes[1][column].plot(
                    found.xs(panel, policy), found.line(panel, policy, name), color=colour, linestyle=dash
                )
        axes[0][column].set_title(panel)
        axes[0][column].set_ylim(0.0, 1.0)
        axes[1][column].set_yscale("log")
        axes[1][column].set_yticks([10, 20, 50, 100, 200], ["10", "20", "50", "100", "200"])
        axes[1][column].minorticks_off()
        axes[1][column].set_xlabel("pdt: part of tasks that are distributed")
    axes[0][0].set_ylabel("SystemCoDe")
    axes[1][0].set_ylabel("mean return times:\n— distributed, ⋯ local")
    legend(figure, axes)
    return figure


def _points5(size: Size) -> dict[Key, Sim]:
    del size
    return {
        Key(f"MRQL {mrql}, pdt {pdt:g}", policy, float(mco)): Served(policy, mrql, pdt, mco=mco)
        for mrql in QUEUES
        for pdt in PARTS
        for policy in ("PRE", "DYN")
        for mco in range(mrql - 2, mrql + 3)
    }


def _words5(found: Found) -> str:
    rows = []
    for panel in dict.fromkeys(key.panel for key in found.points):
        for policy in ("PRE", "DYN"):
            line = found.line(panel, policy, "system_code")
            rows.append([f"{panel}, {policy}", *(f"{code:.2f}" for code in line)])
    head = ["", *("MCO = MRQL" + (f" {more:+d}" if more else "").replace("-", "−") for more in range(-2, 3))]
    beyond = ", ".join(f"{100 * _beyond(found, pdt):.0f} % at pdt = {pdt:g}" for pdt in PARTS)
    return (
        "SystemCoDe rises with MCO, as published. It is not flat above MRQL: from MRQL to MRQL + 2 it rises by a part "
        f"of what it rises from MRQL − 2 to MRQL, {beyond}. The more tasks are distributed, the less MCO matters at "
        f"all.\n\n{table(head, rows)}"
    )


def _beyond(found: Found, pdt: float) -> float:
    """Return how much SystemCoDe rises above MCO = MRQL, as a part of its rise below."""
    lines = [
        found.line(f"MRQL {mrql}, pdt {pdt:g}", policy, "system_code") for mrql in QUEUES for policy in ("PRE", "DYN")
    ]
    return sum(line[4] - line[2] for line in lines) / sum(line[2] - line[0] for line in lines)


def _draw5(found: Found) -> object:
    figure, axes = sheet(1, 2, share=False, height=2.6)
    for axis, mrql in zip(axes[0], QUEUES, strict=True):
        for colour, pdt in zip(COLOURS, PARTS, strict=False):
            for policy, dash in (("PRE", "-"), ("DYN", "--")):
                panel = f"MRQL {mrql}, pdt {pdt:g}"
                axis.plot(
                    found.xs(panel, policy),
                    found.line(panel, policy, "system_code"),
                    color=colour,
                    linestyle=dash,
                    marker="o",
                    label=f"{policy}, pdt {pdt:g}",
                )
        axis.axvline(mrql, color="#777777", linestyle=":", linewidth=1)
        axis.set_title(f"MRQL {mrql}")
        axis.set_xlabel("MCO: overtakings of a task while it waits")
        axis.set_ylim(0.0, 1.0)
    axes[0][0].set_ylabel("SystemCoDe")
    legend(figure, axes)
    return figure


def _points41(size: Size) -> dict[Key, Sim]:
    del size
    return {Key("4.1", policy, 0.0): Cells(policy) for policy in table41.POLICIES}


def letters(found: Found) -> list[table41.Letter]:
    """Return the letters of the mean of the seeds."""
    codes = {}
    for policy in table41.POLICIES:
        each = [run["code"] for run in found.points[Key("4.1", policy, 0.0)]]
        codes[policy] = dict(
            zip(table41.cells(policy), (fmean(values) for values in zip(*each, strict=True)), strict=True)
        )
    return table41.letters(codes)


def _words41(found: Found) -> str:
    all_ = letters(found)
    rows = []
    for parameter in table41.PUBLISHED:
        row = [parameter]
        for policy in table41.POLICIES:
            cell = [each for each in all_ if (each.parameter, each.policy) == (parameter, policy)]
            row.append("".join(_cell(each) for each in cell) or "–")
        rows.append(row)
    equal = sum(each.equal for each in all_)
    return (
        f"{equal} of {len(all_)} letters as published; of the others, the published one is in brackets. In each cell "
        "of the grid all policies are given the same tasks. [Why they differ](#solsona-2002-coscheduling).\n\n"
        f"{table(['SystemCoDe', *table41.POLICIES], rows)}"
    )


def _cell(letter: table41.Letter) -> str:
    words = f"{letter.change:+.3f} {letter.letter}".replace("-", "−")
    return words if letter.equal else f"{words} **({letter.published})**"


def _draw41(found: Found) -> object:
    all_ = letters(found)
    figure, axes = sheet(1, 1, width=5.6, height=2.8)
    axis = axes[0][0]
    axis.set_axisbelow(True)
    parameters = list(table41.PUBLISHED)
    for n, (policy, colour) in enumerate(zip(table41.POLICIES, COLOURS, strict=False)):
        mine = [each for each in all_ if each.policy == policy]
        at = [parameters.index(each.parameter) + 0.13 * (n - 2.5) for each in mine]
        bars = axis.bar(at, [each.change for each in mine], width=0.12, color=colour, label=policy)
        for bar, each in zip(bars, mine, strict=True):
            if not each.equal:
                bar.set_hatch("////")
                bar.set_edgecolor("white")
    for level in (table41.CONSTANT, table41.SCARCE):
        for side in (-level, level):
            axis.axhline(side, color="#777777", linestyle=":", linewidth=0.8)
    axis.set_xticks(range(len(parameters)), parameters)
    axis.set_ylabel("change; hatched: another letter\nthan the published one")
    legend(figure, axes)
    return figure


SLICES = {
    "spinning, buckets": ("bucket", "spin"),
    "blocking, buckets": ("bucket", "block"),
    "blocking, windows": ("windows", "block"),
}


def _points_apart(size: Size) -> dict[Key, Sim]:
    del size
    return {
        Key(f"grain {grain} ms", name, float(apart)): Apart(*how, grain, apart)
        for grain in GRAINS
        for name, how in SLICES.items()
        for apart in range(0, 51, 5)
    }


def _words_apart(found: Found) -> str:
    rows = []
    for grain in GRAINS:
        for name in SLICES:
            values = [found.mean(f"grain {grain} ms", name, float(apart), "rate") for apart in range(0, 51, 10)]
            rows.append([f"{name}, {grain} ms", *(f"{value:.3f}" for value in values)])
        law = [spinning_rate(HALF, grain * MS, [0.0, apart * MS], LATENCY) for apart in range(0, 51, 10)]
        rows.append([f"law of windows, {grain} ms", *(f"{value:.3f}" for value in law)])
    return (
        "ranks that wait by spinning lose what their slices do not share, but for one grain or two in a period. Those "
        "that block lose nothing where slices are budgets, as the kernel's quotas are: they keep theirs until the "
        "partner runs. The budgets are full at the begin, so in these six seconds spinning ranks do a little more than "
        "the law of windows, which is for any long time.\n\n"
        f"{table(['rate by ms apart', *(str(apart) for apart in range(0, 51, 10))], rows)}"
    )


def _draw_apart(found: Found) -> object:
    figure, axes = sheet(1, len(GRAINS), height=2.5)
    for axis, grain in zip(axes[0], GRAINS, strict=True):
        law = [spinning_rate(HALF, grain * MS, [0.0, apart * MS], LATENCY) for apart in range(51)]
        axis.plot(range(51), law, color="#bbbbbb", linewidth=3, label="law of windows")
        for name, colour, marker in zip(SLICES, COLOURS, MARKERS, strict=False):
            panel = f"grain {grain} ms"
            xs, ys = found.xs(panel, name), found.line(panel, name, "rate")
            hollow = {"markersize": 8, "markerfacecolor": "none"} if "spin" in name else {}
            axis.plot(xs, ys, color=colour, marker=marker, linestyle="none", label=name, **hollow)
        axis.set_title(f"grain {grain} ms")
        axis.set_xlabel("slices begin so far apart, ms")
        axis.set_ylim(0.0, 0.6)
    axes[0][0].set_ylabel("rate, of that alone")
    legend(figure, axes)
    return figure


def _points_phases(size: Size) -> dict[Key, Sim]:
    del size
    return {
        Key(f"grain {grain} ms", name, float(nodes)): Phases(*how, nodes, grain)
        for grain in GRAINS
        for name, how in SLICES.items()
        for nodes in NODES
    }


def _gain(found: Found, grain: int, name: str, nodes: int) -> float:
    panel = f"grain {grain} ms"
    return found.mean(panel, name, float(nodes), "aligned") / found.mean(panel, name, float(nodes), "rate")


def _words_phases(found: Found) -> str:
    rows = [
        [f"{name}, {grain} ms", *(f"{_gain(found, grain, name, nodes):.2f}" for nodes in NODES)]
        for grain in GRAINS
        for name in SLICES
    ]
    chances = ", ".join(f"{HALF.share / all_open(HALF.share, nodes):.0f}" for nodes in NODES)
    return (
        "aligned slices over slices at random phases, ratio of mean rates. Programs that spin gain much at small "
        f"grains, and more on more nodes. If they got on only while all n windows are open (Uⁿ), it would be {chances}."
        " But one grain or two of each period need no overlap. Programs that block gain nothing where slices are "
        "budgets.\n\n"
        f"{table(['gain by nodes', *map(str, NODES)], rows)}"
    )


def _draw_phases(found: Found) -> object:
    figure, axes = sheet(1, len(SLICES), height=2.5)
    for axis, name in zip(axes[0], SLICES, strict=True):
        for grain, colour, marker in zip(GRAINS, COLOURS, MARKERS, strict=False):
            gains = [_gain(found, grain, name, nodes) for nodes in NODES]
            axis.plot(NODES, gains, color=colour, marker=marker, label=f"grain {grain} ms")
        axis.set_title(name)
        axis.set_xlabel("nodes")
        axis.set_xscale("log", base=2)
        axis.set_xticks(NODES, map(str, NODES))
        axis.set_yscale("log")
        axis.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
        axis.minorticks_off()
    axes[0][0].set_ylabel("aligned over random phases")
    legend(figure, axes)
    return figure


FIGURES: Sequence[Figure] = (
    Figure(
        name="coschedule.4.2",
        title="Six policies (Solsona 2002, figures 4.2 to 4.4)",
        parameters="four stations, mit = 10, MCO = MRQL, a quantum of 10, 10,000 distributed tasks",
        published="orders only, as the figures are not in the text: HPDT best, PRE and DYN close behind, closest at "
        "pdt = 0.2, LIN and EXP in the middle, IMP worst; a high SystemCoDe goes with short times of distributed tasks "
        "and long ones of local tasks",
        points=_points2,
        words=_words2,
        draw=_draw2,
        alt="SystemCoDe and mean return times of six policies over the part of distributed tasks",
    ),
    Figure(
        name="coschedule.4.5",
        title="How often a task may be overtaken (Solsona 2002, figure 4.5)",
        parameters="as before, maxm = 3, MCO from MRQL − 2 to MRQL + 2",
        published="SystemCoDe rises while MCO is at most MRQL and is about flat above",
        points=_points5,
        words=_words5,
        draw=_draw5,
        alt="SystemCoDe of PRE and DYN over MCO, for three parts of distributed tasks",
    ),
    Figure(
        name="coschedule.4.1",
        title="What parameters change (Solsona 2002, table 4.1)",
        parameters="NSTATIONS 4 and 16, MRQL 2 and 5, maxm 1 and 3, pdt 0.2, 0.5 and 0.8, MCO = MRQL ± 2; 10,000 "
        "distributed tasks each; mean change of SystemCoDe, or of its lead over LIN, over all values of the other "
        "parameters; up to 0.015 is C, up to 0.05 is SI or SD",
        published="the letters",
        points=_points41,
        words=_words41,
        draw=_draw41,
        alt="Changes of SystemCoDe by parameter and policy; hatched where the letter differs from the published one",
    ),
    Figure(
        name="coschedule.apart",
        title="Slices that begin apart",
        parameters="two ranks on two nodes, slices of 50 in 100 ms, a hog on each node, messages take 50 µs, 6 s",
        published="nothing; the chapter with measurements is not in the text",
        points=_points_apart,
        words=_words_apart,
        draw=_draw_apart,
        alt="Rates of two ranks by how far apart their slices begin, for three grains",
    ),
    Figure(
        name="coschedule.nodes",
        title="Aligned slices on more nodes",
        parameters="as before on 2, 4 and 8 nodes, all ranks wait for all, 100 draws of phases for a seed, 3 s each",
        published="nothing",
        points=_points_phases,
        words=_words_phases,
        draw=_draw_phases,
        alt="Rate of aligned slices over that of random phases by nodes, for ranks that spin and that block",
    ),
)
