"""The pictures of the experiments, in the looks of the papers' figures."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean, median
from typing import Any

from lib.testbed import ROOT, Json

sys.path.insert(0, str(ROOT / "tests/support"))
from figures.draw import COLOURS, sheet

ARMS = {"aligned": COLOURS[0], "uncoordinated": COLOURS[1], "apart": "#b07aa1", "none": "#888888"}
"""The colours of the arms of aligned slices."""


def steps(found: Json, path: Path) -> None:
    """Draw progress under limits that go up and down: a panel for each program."""
    tracks = found["tracks"]
    figure, axes = sheet(len(tracks), 1, width=7.5, height=1.7)
    for axis, (name, track) in zip(axes[:, 0], tracks.items(), strict=True):
        axis.plot(track["time"], smooth(track["units_per_second"], 4), color=COLOURS[0])
        axis.set_ylabel(f"{name}\nunits/s")
        axis.set_ylim(bottom=0)
        other = axis.twinx()
        _limits(other, [(at, cores) for at, cores, _ in track["limits"]], track["time"][-1])
        last = None
        for at, _, period in track["limits"]:
            if period != last:
                axis.axvline(at, color="#999999", linewidth=0.6)
                axis.text(at + 0.5, 0.03, f"{1000 * period:.0f} ms", transform=axis.get_xaxis_transform(), fontsize=8)
                last = period
    axes[-1, 0].set_xlabel("seconds (progress: means of 2 s)")
    _save(figure, path)


def response(found: Json, path: Path) -> None:
    """Draw the urgent chunk's progress on nodes that lose half their CPU, with control and without."""
    programs = found["programs"]
    figure, axes = sheet(len(programs), 1, width=7.5, height=1.8)
    cycle = found["before"] + found["halved"] + found["after"]
    for axis, (name, controls) in zip(axes[:, 0], programs.items(), strict=True):
        for k, (control, one) in enumerate(controls.items()):
            track = one["tracks"]["urgent"]
            axis.plot(
                track["time"],
                smooth(track["units_per_second"], 3),
                color=COLOURS[k],
                label=f"progressControl: {control}",
            )
        for n in range(int(max(track["time"]) / cycle) + 1):
            axis.axvspan(n * cycle, n * cycle + found["halved"], color="#eeeeee", zorder=0)
        axis.set_ylabel(f"{name}\nunits/s")
        axis.set_ylim(bottom=0)
    axes[0, 0].legend(loc="lower right", ncol=2)
    axes[-1, 0].set_xlabel("seconds (grey: half the CPU)")
    _save(figure, path)


def rate(found: Json, path: Path) -> None:
    """Draw the rates of programs over their targets, and the periods of their slices."""
    programs = found["programs"]
    figure, axes = sheet(len(programs), 1, width=7.5, height=2.0)
    for axis, (name, one) in zip(axes[:, 0], programs.items(), strict=True):
        end = one["time"][-1]
        begins = [at for at, _ in one["target"]]
        for (begin, target), until in zip(one["target"], [*begins[1:], end], strict=True):
            band = target - found["epsilon"], target + found["epsilon"]
            axis.fill_between([begin, until], *band, color="#cccccc", linewidth=0)
        axis.axvspan(end - found["stranger"], end, color="#f6e5d5", zorder=0)
        axis.plot(one["time"], one["rate"], color=COLOURS[0])
        axis.set_ylabel(f"{name}\nrate, of that alone")
        axis.set_ylim(0, 1.1)
        other = axis.twinx()
        periods = [(at, 1000 * period) for at, period in one["period"]]
        other.step(
            [*(at for at, _ in periods), end],
            [*(p for _, p in periods), periods[-1][1]],
            where="post",
            color=COLOURS[1],
            linewidth=0.8,
        )
        other.set_ylim(0, 220)
        other.set_ylabel("period, ms", color=COLOURS[1])
        other.grid(visible=False)
        axis.set_xlim(one["time"][0], end)
    axes[-1, 0].set_xlabel("seconds (means of 4 s; grey: target ± ε; orange: a stranger on a node)")
    _save(figure, path)


def disturbed(found: Json, path: Path) -> None:
    """Draw when each admitted job finished, relative to its deadline."""
    figure, axes = sheet(1, 1, width=7.5, height=2.8)
    axis = axes[0, 0]
    for k, (control, one) in enumerate(found["pools"].items()):
        ends = sorted(job["finish"] / job["deadline"] for job in one["ended"] if job["finish"] is not None)
        count = one["admitted"]
        shares = [(n + 1) / count for n in range(len(ends))]
        axis.step(ends, shares, where="post", color=COLOURS[k], label=f"progressControl: {control}")
    axis.axvline(1.0, color="#999999", linewidth=0.8)
    axis.set_xlabel("finish, relative to the deadline")
    axis.set_ylabel("part of the admitted jobs")
    axis.set_ylim(0, 1.02)
    axis.legend(loc="upper left")
    _save(figure, path)


def guests(found: Json, path: Path) -> None:
    """Draw the ratios of all pairs: with guests over alone, and alone over alone."""
    figure, axes = sheet(1, 2, width=3.6, height=2.6, share=False)
    for axis, (work, title) in zip(axes[0], (("web", "web server, p99"), ("benchmark", "benchmark")), strict=True):
        rows = []
        for request, works in found["requests"].items():
            one = works[work]
            if one["noise"] is not None:
                rows.append(("alone", one["noise"], "#888888"))
            rows.append((request, one["ratio"], COLOURS[len(rows) % 2]))
        for at, (_, one, colour) in enumerate(rows):
            spots = [at + 0.24 * ((k % 5) / 4 - 0.5) for k in range(len(one["all"]))]
            axis.plot(spots, one["all"], "o", color=colour, markersize=3, alpha=0.5, markeredgewidth=0)
            axis.plot([at, at], [one["low"], one["high"]], color=colour, linewidth=2)
            axis.plot([at - 0.2, at + 0.2], 2 * [one["median"]], color=colour, linewidth=2)
        axis.axhline(1.0, color="#999999", linewidth=0.8)
        axis.set_xticks(range(len(rows)), [name for name, _, _ in rows])
        axis.set_xlim(-0.5, len(rows) - 0.5)
        axis.set_title(title, fontsize=9)
        if work == "web":
            axis.set_yscale("log")
            axis.set_yticks([0.1, 0.2, 0.5, 1, 2, 5], ["0.1", "0.2", "0.5", "1", "2", "5"])
            axis.minorticks_off()
    axes[0, 0].set_ylabel("over alone")
    _save(figure, path)


def coscheduling(found: Json, path: Path) -> None:
    """Draw the rates of all arms, and beside them the slices of both ranks on a time line."""
    programs = found["programs"]
    figure, axes = sheet(1, 1, width=7.5, height=3.0)
    axis = axes[0, 0]
    arms = list(ARMS)
    for at, one in enumerate(programs.values()):
        for k, arm in enumerate(arms):
            rates = [block[arm]["rate"] for block in one["runs"]]
            spot = at + 0.18 * (k - (len(arms) - 1) / 2)
            axis.plot([spot] * len(rates), rates, "o", color=ARMS[arm], markersize=3, alpha=0.4, markeredgewidth=0)
            axis.plot([spot - 0.07, spot + 0.07], 2 * [median(rates)], color=ARMS[arm], linewidth=2)
    axis.set_xticks(range(len(programs)), [name.replace(", ", "\n") for name in programs])
    for arm in arms:
        axis.plot([], [], color=ARMS[arm], linewidth=2, label=arm)
    axis.axhline(found["share"], color="#999999", linewidth=0.8)
    axis.set_ylim(bottom=0)
    axis.set_ylabel("rate, of that alone on a CPU")
    axis.legend(ncol=len(arms), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    _save(figure, path)
    for one in programs.values():
        if "slices" in one:
            slices(one["slices"], path.with_name(f"{path.stem}-slices.svg"))


def slices(found: dict[str, list[list[list[float]]]], path: Path) -> None:
    """Draw when each rank runs."""
    figure, axes = sheet(len(found), 1, width=7.5, height=1.0)
    for axis, (arm, ranks) in zip(axes[:, 0], found.items(), strict=True):
        for k, spans in enumerate(ranks):
            axis.broken_barh([(a, b - a) for a, b in spans], (-k - 0.35, 0.7), color=ARMS[arm], linewidth=0)
        axis.set_yticks([-k for k in range(len(ranks))], [f"node {k + 1}" for k in range(len(ranks))])
        axis.set_title(arm, fontsize=9, loc="left")
        axis.grid(visible=False, axis="y")
    axes[-1, 0].set_xlabel("ms")
    _save(figure, path)


def smooth(rates: list[float], count: int) -> list[float]:
    """Return the mean of each rate and those before it, ``count`` in all."""
    return [fmean(rates[max(0, n + 1 - count) : n + 1]) for n in range(len(rates))]


def nothing(_found: Json, _path: Path) -> None:
    """Draw nothing: one sentence says all."""


def _limits(axis: Any, limits: list[tuple[float, float]], end: float) -> None:
    times, cores = [at for at, _ in limits] + [end], [one for _, one in limits]
    axis.step(times, [*cores, cores[-1]], where="post", color=COLOURS[1], linewidth=0.8)
    axis.set_ylim(0, 0.3)
    axis.set_ylabel("limit, cores", color=COLOURS[1])
    axis.grid(visible=False)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None, "Creator": None})
