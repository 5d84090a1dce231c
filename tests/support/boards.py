"""Draws a dashboard from the answers to its own queries: each panel with its title, unit, curves and legend."""

import itertools
import math
import re

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, MaxNLocator
from monitoring_lib.panels import FULL
from PIL import Image

WIDTH, HEAD, LINE = 16.0, 0.6, 0.3
"""Inches: the page's width, its title, one line of Grafana's grid."""
LEFT, RIGHT, ABOVE, BOTTOM = 0.75, 0.15, 0.3, 0.5
"""Inches around the axes of a panel."""
HEIGHTS = {"number": 4, "lines": 8, "bars": 8, "heat": 8}
COLOURS = ["#3274d9", "#e0752d", "#37872d", "#c4162a", "#8f3bb8", "#e5b000", "#0a8a99", "#7c7c7c"]
TEXT, FRAME = "#24292e", "#c7d0d9"
NAMED = 6
"""Of more curves than this, only those that are ever other than 0 are drawn: the legend has no room for all."""
TIMES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))
"""Seconds of a unit. The first unit that a curve exceeds twice is its axis' unit."""
SHADES = 255
"""Colours of a picture: curves keep theirs, and the file is small."""
UNITS = {"percentunit": lambda value: f"{value:.0%}", "reqps": lambda value: f"{value:g}/s"}


def draw(board, found, start, end, path):
    """Draw a dashboard; ``found``: per panel's title, for each of its queries [(labels, [(time, value)])]."""
    lines = [line for title, panels in board.rows for line in (title, *_lines(panels))]
    heights = [LINE * (1 if isinstance(line, str) else max(HEIGHTS[panel.kind] for panel in line)) for line in lines]
    full = sum(heights) + HEAD
    figure = plt.figure(figsize=(WIDTH, full))
    figure.text(0.01, 1 - 0.5 * HEAD / full, board.title, va="center", fontsize=15, color=TEXT)
    top = full - HEAD
    for line, height in zip(lines, heights, strict=True):
        top -= height
        if isinstance(line, str):
            figure.text(0.01, (top + 0.08) / full, line, fontsize=12, weight="bold", color=TEXT)
            continue
        left = 0.0
        for panel in line:
            width = WIDTH * panel.width / FULL
            x, y, w, h = left + LEFT, top + BOTTOM, width - LEFT - RIGHT, height - BOTTOM - ABOVE
            axes = figure.add_axes((x / WIDTH, y / full, w / WIDTH, h / full))
            _panel(axes, panel, found[panel.title], start, end)
            left += width
    figure.savefig(path, dpi=85)
    plt.close(figure)
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(SHADES, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def _lines(panels):
    line, width = [], 0
    for panel in panels:
        if width + panel.width > FULL:
            yield line
            line, width = [], 0
        line.append(panel)
        width += panel.width
    yield line


def _panel(axes, panel, answers, start, end):
    axes.set_title(panel.title, fontsize=10, loc="left", color=TEXT)
    for side in axes.spines.values():
        side.set_color(FRAME)
    axes.tick_params(colors=TEXT, labelsize=8)
    if panel.kind == "number":
        axes.set_xticks([], [])
        axes.set_yticks([], [])
        values = [curve[-1][1] for curves in answers for _, curve in curves]
        text = ", ".join(_shown(panel)(value) for value in values) or "No data"
        axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=24, color=COLOURS[0], transform=axes.transAxes)
        return
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
    if panel.kind == "heat":
        _heat(axes, answers[0], start, _shown(panel))
    else:
        _curves(axes, panel, answers, start)
    axes.set_xlim(0, end - start)


def _curves(axes, panel, answers, start):
    curves = [(query, labels, [(at - start, value) for at, value in curve if not math.isnan(value)])
              for query, found in zip(panel.queries, answers, strict=True) for labels, curve in found]  # fmt: skip
    curves = [one for one in curves if one[2]]
    if len(curves) > NAMED:
        curves = [one for one in curves if any(value for _, value in one[2])]
    high = max((abs(value) for _, _, curve in curves for _, value in curve), default=0.0)
    size, unit = next((one for one in TIMES if 2 * one[0] <= high), (1.0, "s")) if panel.unit == "s" else (1.0, "")
    shown = _shown(panel) if not unit else lambda value: f"{value:g} {unit}"
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value)))
    axes.grid(color=FRAME, linewidth=0.5)
    axes.set_axisbelow(True)
    below = {}
    for number, (query, labels, curve) in enumerate(curves):
        times, values = [at for at, _ in curve], [value / size for _, value in curve]
        name = re.sub(r"{{(\w+)}}", lambda match, of=labels: of.get(match.group(1), ""), query.legend)
        look = {"label": name.removeprefix("__auto") or None, "color": COLOURS[number % len(COLOURS)]}
        if panel.kind == "bars":
            step = min((b - a for a, b in itertools.pairwise(times)), default=1)
            base = [below.get(at, 0.0) for at in times]
            axes.bar(times, values, width=0.8 * step, bottom=base, **look)
            below |= {at: b + value for at, b, value in zip(times, base, values, strict=True)}
        else:
            axes.plot(times, values, **look)
    if all(value >= 0 for _, _, curve in curves for _, value in curve):
        axes.set_ylim(0, None if high else 1)
    whole = panel.kind == "lines" and all(value == int(value) for _, _, curve in curves for _, value in curve)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=whole and panel.unit == "short"))
    if not high:
        axes.text(0.5, 0.5, "0 all the time", ha="center", color=TEXT, fontsize=9, transform=axes.transAxes)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=8, ncols=8, loc="upper left", bbox_to_anchor=(0, -0.14), frameon=False, borderpad=0)


def _heat(axes, curves, start, shown):
    """Draw the growth of each bucket alone: Prometheus' buckets contain those below them."""
    curves = sorted(curves, key=lambda one: float(one[0]["le"]))
    times = [at - start for at, _ in curves[0][1]]
    above = [0.0] * len(times)
    cells = []
    for _, curve in curves:
        values = [value for _, value in curve]
        cells.append([max(value - under, 0.0) for value, under in zip(values, above, strict=True)])
        above = values
    axes.pcolormesh(times, range(len(cells)), cells, cmap="Blues", shading="nearest")
    axes.set_yticks(range(len(cells)), [f"≤ {_bound(labels['le'], shown)}" for labels, _ in curves], fontsize=7)


def _bound(le, shown):
    return "∞" if le == "+Inf" else shown(float(le))


def _shown(panel):
    """Return what writes a value of a panel with its unit."""
    return UNITS.get(panel.unit) or (_seconds if panel.unit == "s" else lambda value: f"{value:g}")


def _seconds(value):
    size, unit = next((one for one in TIMES if one[0] <= abs(value)), (1.0, "s"))
    return f"{value / size:g} {unit}"
