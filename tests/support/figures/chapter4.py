"""Chapter 4: partition, assignment, order. N = 256, χ = 1000, Avgσ = 1000, all of a job's processors begin together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from figures.draw import COLOURS, grid, legend, sheet, styles
from figures.figure import Figure, Found, Key, Numbers, Sim, Size, table
from figures.letter4 import letter
from punctual.scheduling.model.discipline import Discipline
from punctual.sim.options import Options
from punctual.sim.run import simulate
from punctual.sim.workload import Workload
from punctual.theory.cost import Cost
from punctual.theory.execution_time import execution_time, n_star

N, AVERAGE = 256, 1000.0
TENTHS = [n / 10 for n in range(1, 11)]
PANELS = {
    "letter 500": "fig. 4.1 to the letter, θ = 500",
    "pool 500": "the Pool, one port, θ = 500",
    "letter 5": "fig. 4.1 to the letter, θ = 5",
    "pool 5": "the Pool, one port, θ = 5",
}


@dataclass(frozen=True)
class Point:
    """An algorithm as EDF-OPR-MN, in one of the PANELS, on the paper's workload."""

    panel: str
    algorithm: str
    load: float
    tau: float = 1.0
    chi: float = 1000.0
    dc_ratio: float = 2.0

    def run(self, seed: int, size: Size) -> Numbers:
        """Simulate it."""
        who, theta = self.panel.split()
        order, partition, assign = self.algorithm.split("-")
        cost = Cost(self.chi, self.tau, theta_cm=float(theta), theta_cp=float(theta))
        workload = Workload(cost=cost, processors=N, load=self.load, average=AVERAGE, dc_ratio=self.dc_ratio)
        trace = workload.draw(seed=seed, horizon=1e6 * size.stretch * self._slow)
        discipline = Discipline(order=order, partition=partition, assign=assign, network="OnePort", start="Together")
        if who == "letter":
            return letter(trace, N, cost, discipline)
        metrics = simulate(trace, Options(processors=N, cost=cost, discipline=discipline, offers=False)).metrics()
        assert metrics["miss_ratio"] == 0.0
        return {"rejected": metrics["reject_ratio"], "utilization": metrics["utilization"]}

    @property
    def _slow(self) -> float:
        """How much longer is simulated where jobs are long, and so few; the Pool shorter where they are short."""
        return self.chi / 1000.0 if self.panel.startswith("pool") else max(1.0, self.chi / 1000.0)

    def weight(self, size: Size) -> float:
        """Guess: jobs, and how many chunks each has."""
        jobs = 256e6 * size.stretch * self._slow * self.load / (self.chi * AVERAGE)
        if self.panel.startswith("letter"):
            return 0.001 * jobs
        slow = 1.0 if self.panel.endswith("500") else 10.0 if self.algorithm.endswith("EPR-AN") else 3.0
        return 0.007 * jobs * slow


def loads(panel: str, size: Size) -> Sequence[float]:
    """Return the SystemLoads of a panel: the paper's, or some of them where a run takes long."""
    return TENTHS if size.every or panel.startswith("letter") else TENTHS[1::4]


def over_load(curves: dict[str, dict[str, object]], size: Size) -> dict[Key, Sim]:
    """Return points over SystemLoad: curves by name, each with what makes its points."""
    return {
        Key(panel, name, load): Point(panel, load=load, **how)
        for panel in PANELS
        for name, how in curves.items()
        for load in loads(panel, size)
    }


def _panels(found: Found) -> dict[str, str]:
    """Return the panels that have points."""
    there = {key.panel.split(maxsplit=1)[-1] if key.panel[1] == " " else key.panel for key in found.points}
    return {panel: title for panel, title in PANELS.items() if panel in there}


def _table(
    head: Sequence[str], found: Found, numbers: Callable[[str], Sequence[object]], *, form: str = "{:+.1f}"
) -> str:
    """Return a table with a row for each panel."""
    return "\n\n" + table(head, [[title, *numbers(panel)] for panel, title in _panels(found).items()], form=form)


def above(found: Found, panel: str, more: str, less: str) -> float:
    """Return what the first refuses over the second, in percentage points, the mean of loads 0.2, 0.6 and 1."""
    return fmean(found.over(panel, more, less))


# 4.5


@dataclass(frozen=True)
class Executed:
    """E(σ, n) of the basic model: no simulation."""

    theta: float
    n: int

    def run(self, seed: int, size: Size) -> Numbers:
        """Compute it by (4.6), as far as each share is positive."""
        return {"seconds": execution_time(AVERAGE, self.n, Cost(1000.0, 1.0, self.theta, self.theta))}

    def weight(self, size: Size) -> float:
        """Nothing."""
        return 0.0


def _star(theta: float) -> int:
    return n_star(AVERAGE, Cost(1000.0, 1.0, theta, theta), limit=10_000)


def _points_45(size: Size) -> dict[Key, Sim]:
    return {Key("E", f"θ = {theta:g}", n): Executed(theta, n) for theta in (5.0, 500.0) for n in range(1, 121)}


def _draw_45(found: Found):
    figure, axes = sheet(1, 2, share=False)
    for axis, theta, letter_ in zip(axes[0], (5.0, 500.0), "ab", strict=True):
        name = f"θ = {theta:g}"
        axis.plot(found.xs("E", name), [s / 1000 for s in found.line("E", name, "seconds")], color=COLOURS[0])
        axis.set_title(f"({letter_}) θcm = θcp = {theta:g}")
        axis.set_xlabel("processors n")
        axis.set_ylim(0, 160)
        axis.set_ylabel("E(σ, n), 10³ time units")
    least = min(found.xs("E", "θ = 500"), key=lambda n: found.mean("E", "θ = 500", n, "seconds"))
    axes[0][1].axvline(63, color="#999999", linestyle=":", linewidth=1)
    axes[0][1].annotate(f"n* = {least:g} (published: 63)", (63, 120), xytext=(4, 0), textcoords="offset points")
    return figure


def _words_45(found: Found) -> str:
    least = {
        name: min(found.xs("E", name), key=lambda n: found.mean("E", name, n, "seconds"))
        for name in ("θ = 5", "θ = 500")
    }
    return (
        f"n* = {least['θ = 500']:g} with θ = 500. With θ = 5 E falls up to n* = {_star(5.0)}: only without any "
        "set-up it falls for ever."
    )


# 4.6 to 4.8: OPR against EPR


FOUR = ("EDF-OPR-MN", "EDF-EPR-MN", "EDF-OPR-AN", "EDF-EPR-AN")


def _draw_46(found: Found):
    return grid(found, _panels(found), styles(FOUR, ("-", "--")))


def _words_46(found: Found) -> str:
    head = "refused, points, mean of loads 0.2, 0.6, 1", "EPR over OPR, MN", "EPR over OPR, AN", "MN over AN, OPR"
    opr_mn, epr_mn, opr_an, epr_an = FOUR
    pairs = (epr_mn, opr_mn), (epr_an, opr_an), (opr_mn, opr_an)
    return _table(head, found, lambda panel: [above(found, panel, *pair) for pair in pairs])


RATIOS = (2.0, 10.0, 100.0)
BY_RATIO = {
    f"EDF-{rule}-AN, DCRatio {dc:g}": {"algorithm": f"EDF-{rule}-AN", "dc_ratio": dc}
    for dc in RATIOS
    for rule in ("OPR", "EPR")
}


def _points_47(size: Size) -> dict[Key, Sim]:
    points = over_load(BY_RATIO, size)
    if size.every:
        return points
    # with small set-ups the Pool's runs are the longest: only where the figure is about, and some job is refused
    return {
        key: sim
        for key, sim in points.items()
        if key.panel != "pool 5" or (key.x < 0.8 and not key.curve.endswith("100"))
    }


def _words_47(found: Found) -> str:
    def gap(panel: str, dc: float) -> object:
        epr, opr = (f"EDF-{rule}-AN, DCRatio {dc:g}" for rule in ("EPR", "OPR"))
        if not found.xs(panel, epr):
            return ""
        return fmean(100 * (found.mean(panel, epr, x) - found.mean(panel, opr, x)) for x in (0.2, 0.6))

    head = "EPR over OPR, points, mean of loads 0.2, 0.6", *(f"DCRatio {dc:g}" for dc in RATIOS)
    return _table(head, found, lambda panel: [gap(panel, dc) for dc in RATIOS])


SPEEDS = (100.0, 1000.0, 10000.0)
BY_SPEED = {
    f"EDF-{rule}-MN, χ = {chi:g}": {"algorithm": f"EDF-{rule}-MN", "chi": chi}
    for chi in SPEEDS
    for rule in ("OPR", "EPR")
}


def _words_48(found: Found) -> str:
    def gap(panel: str, chi: float) -> float:
        return above(found, panel, *(f"EDF-{rule}-MN, χ = {chi:g}" for rule in ("EPR", "OPR")))

    head = "EPR over OPR, points, mean of loads 0.2, 0.6, 1", *(f"χ = {chi:g}" for chi in SPEEDS)
    return _table(head, found, lambda panel: [gap(panel, chi) for chi in SPEEDS])


# 4.9: MN against AN


MN, AN = "EDF-OPR-MN", "EDF-OPR-AN"
LOADS_49 = (0.2, 0.6, 1.0)
TAUS, RATIOS_49 = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0), (2.0, 4.0, 6.0, 8.0, 10.0)


def _points_49(size: Size) -> dict[Key, Sim]:
    points: dict[Key, Sim] = {}
    for panel in PANELS:
        few = not size.every and panel.startswith("pool")
        for name in (MN, AN):
            for load in LOADS_49[1:] if few else LOADS_49:
                for tau in TAUS[::5] if few else TAUS:
                    points[Key(f"a {panel}", f"{name}, {load}", tau)] = Point(panel, name, load, tau=tau)
                for dc in RATIOS_49[::4] if few else RATIOS_49:
                    points[Key(f"b {panel}", f"{name}, {load}", dc)] = Point(panel, name, load, dc_ratio=dc)
    return points


def _difference(found: Found, panel: str, load: float) -> tuple[list[float], list[float]]:
    """Return abscissae and what MN refuses over AN, in percentage points."""
    a, b = f"{MN}, {load}", f"{AN}, {load}"
    return found.xs(panel, a), [100 * (found.mean(panel, a, x) - found.mean(panel, b, x)) for x in found.xs(panel, a)]


def _draw_49(found: Found):
    panels = _panels(found)
    figure, axes = sheet(2, len(panels), share=False)
    for row, part, x in zip(axes, "ab", ("τ", "DCRatio"), strict=True):
        top = max(abs(d) for p in panels for load in LOADS_49 for d in _difference(found, f"{part} {p}", load)[1])
        for axis, (panel, title) in zip(row, panels.items(), strict=True):
            axis.axhline(0, color="#999999", linewidth=1)
            for load, colour, marker in zip(LOADS_49, COLOURS, "osv", strict=False):
                label = f"SystemLoad {load}"
                axis.plot(*_difference(found, f"{part} {panel}", load), color=colour, marker=marker, label=label)
            axis.set_title(f"({part}) {title}")
            axis.set_xlabel(x)
            axis.set_ylim(-1.1 * top - 1, 1.1 * top + 1)
        row[0].set_ylabel("refused by MN over AN, points")
    legend(figure, axes)
    return figure


def _words_49(found: Found) -> str:
    def end(panel: str, part: str, at: int) -> float:
        return fmean(_difference(found, f"{part} {panel}", load)[1][at] for load in LOADS_49[1:])

    head = "MN over AN, points, mean of loads 0.6, 1", "τ = 1, DCRatio 2", "τ = 20, DCRatio 2", "τ = 1, DCRatio 10"
    ends = ("a", 0), ("a", -1), ("b", -1)
    return _table(head, found, lambda panel: [end(panel, *at) for at in ends])


# 4.10 to 4.12: FIFO, EDF, MWF


ORDERS = ("FIFO-OPR-MN", "EDF-OPR-MN", "MWF-OPR-MN")


def _ordered(name: str, tau: float) -> Figure:
    def points(size: Size) -> dict[Key, Sim]:
        return over_load({order: {"algorithm": order, "tau": tau} for order in ORDERS}, size)

    def words(found: Found) -> str:
        each = [(order, metric) for metric in ("rejected", "utilization") for order in ORDERS]
        columns = (f"{o[:-7]} {'refuses' if m == 'rejected' else 'uses'}" for o, m in each)
        head = "%, mean of loads 0.2, 0.6, 1", *columns
        levels = [[found.level(panel, order) for order in ORDERS] for panel in _panels(found)]
        apart = max(max(row) - min(row) for row in levels)
        curves = {key[:2] for key in found.points}
        spans = [100 * (b - a) for each_ in curves for a, b in zip(*found.spread(*each_, "rejected"), strict=True)]
        return (
            f"Not as published: the orders differ by at most {apart:.1f} points, the seeds of a point by "
            f"{fmean(spans):.1f} on average. With DCRatio 2 few jobs wait for each other."
            + _table(head, found, lambda panel: [found.level(panel, *e) for e in each], form="{:.1f}")
        )

    return Figure(
        name,
        f"FIFO, EDF and MWF, τ = {tau:g}",
        f"OPR-MN, τ = {tau:g}, the basic model otherwise",
        {
            1.0: "EDF refuses less than MWF, and always less than FIFO; MWF uses the least processor time",
            10.0: "the distance of EDF and MWF begins to change; EDF below FIFO; MWF uses the least processor time",
            20.0: "MWF refuses less than EDF for most loads, EDF less than FIFO; MWF uses the least processor time",
        }[tau],
        points,
        words,
        lambda found: grid(found, _panels(found), styles(ORDERS)),
        f"Jobs refused and processor time used over SystemLoad for FIFO, EDF and MWF with tau {tau:g}",
    )


FIGURES = (
    Figure(
        "4.5",
        "Execution time over processors",
        "σ = 1000, τ = 1, χ = 1000 (the figure's own are not in the text)",
        "E falls with n where set-ups are small; with large ones it has a least at n* = 63",
        _points_45,
        _words_45,
        _draw_45,
        "E over n for theta 5 and 500, with n* = 63 marked",
    ),
    Figure(
        "4.6",
        "OPR against EPR",
        "the basic model: N = 256, τ = 1, χ = 1000, θcm = θcp = 500, Avgσ = 1000, DCRatio 2",
        "OPR always refuses less and uses more than EPR, with MN and with AN; AN refuses less than MN most of the time",
        lambda size: over_load({name: {"algorithm": name} for name in FOUR}, size),
        _words_46,
        _draw_46,
        "Jobs refused and processor time used over SystemLoad for four algorithms, four readings beside each other",
    ),
    Figure(
        "4.7",
        "OPR against EPR: deadlines",
        "the basic model with DCRatio 2, 10 and 100",
        "OPR refuses less; below load 0.8 EPR comes closer to it as DCRatio grows",
        _points_47,
        _words_47,
        lambda found: grid(found, _panels(found), styles(tuple(BY_RATIO), ("-", "--"))),
        "Jobs refused and processor time used over SystemLoad for OPR and EPR with three DCRatios",
    ),
    Figure(
        "4.8",
        "OPR against EPR: processing speed",
        "the basic model with χ = 100, 1000 and 10000; with 10000 ten times the time units, in the Pool with 100 a "
        "tenth of them: as many jobs",
        "OPR refuses less; the difference falls with χ, and with χ = 10000 the curves are almost the same",
        lambda size: over_load(BY_SPEED, size),
        _words_48,
        lambda found: grid(found, _panels(found), styles(tuple(BY_SPEED), ("-", "--"))),
        "Jobs refused and processor time used over SystemLoad for OPR and EPR with three processing costs",
    ),
    Figure(
        "4.9",
        "All useful processors or the least",
        "the basic model with τ from 1 to 20 (a) and DCRatio from 2 to 10 (b); at which loads is not in the text",
        "(a) MN refuses more than AN for small τ, less as τ grows; (b) the difference falls as DCRatio grows",
        _points_49,
        _words_49,
        _draw_49,
        "What MN refuses over AN, over tau and over DCRatio, for three loads",
    ),
    *(_ordered(name, tau) for name, tau in (("4.10", 1.0), ("4.11", 10.0), ("4.12", 20.0))),
)
