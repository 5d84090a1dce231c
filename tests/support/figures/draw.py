"""How figures look: one style, panels in a grid, lines with the span of their seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from figures.figure import Found

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""Okabe and Ito's, which colour-blind people can tell apart."""
MARKERS = "osv^DPX*"
RULES = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "none",  # text stays text: small, and found by a search
    "svg.hashsalt": "punctual",  # the same points give the same bytes
    "figure.facecolor": "white",
}
Style = Mapping[str, tuple[str, str, str]]
"""By curve: colour, marker, dash."""
REFUSED, USED = ("rejected", "jobs refused, share"), ("utilization", "processor time used, share")


def styles(curves: Sequence[str], dashes: Sequence[str] = ("-",)) -> dict[str, tuple[str, str, str]]:
    """Give each curve its looks: dashes change fastest, so that pairs have one colour."""
    n = len(dashes)
    return {c: (COLOURS[i // n % 8], MARKERS[i // n % 8], dashes[i % n]) for i, c in enumerate(curves)}


def sheet(rows: int, columns: int, *, width: float = 3.1, height: float = 2.5, share: bool = True) -> tuple[Any, Any]:
    """Return figure and axes of a grid."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    mpl.rcParams.update(RULES)
    figure = Figure(figsize=(max(5.0, width * columns + 0.4), height * rows + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey="row" if share else "none")
    return figure, axes


def curve(axis: Any, found: Found, panel: str, name: str, *, metric: str, look: tuple[str, str, str]) -> None:
    """Draw one curve with the span of its seeds."""
    xs = found.xs(panel, name)
    if not xs:
        return
    colour, marker, dash = look
    low, high = found.spread(panel, name, metric)
    axis.fill_between(xs, low, high, color=colour, alpha=0.12, linewidth=0)
    axis.plot(xs, found.line(panel, name, metric), color=colour, marker=marker, linestyle=dash, label=name)


def grid(
    found: Found,
    panels: Mapping[str, str],
    looks: Style,
    *,
    metrics: Sequence[tuple[str, str]] = (REFUSED, USED),
    x: str = "SystemLoad",
    **size: Any,
) -> Any:
    """Draw panels beside each other, a row for each metric; one legend below."""
    figure, axes = sheet(len(metrics), len(panels), **size)
    for row, (metric, words) in zip(axes, metrics, strict=True):
        for axis, (panel, title) in zip(row, panels.items(), strict=True):
            for name, look in looks.items():
                curve(axis, found, panel, name, metric=metric, look=look)
            if axis in axes[0]:
                axis.set_title(title)
            if axis in axes[-1]:
                axis.set_xlabel(x)
        row[0].set_ylabel(words)
        for axis in row:  # not before all is drawn: it ends the scaling
            axis.set_ylim(bottom=0.0)
    legend(figure, axes)
    return figure


def mark(axis: Any, y: float, words: str) -> None:
    """Draw what is published, or asked for, as a level."""
    axis.axhline(y, color="#777777", linestyle=":", linewidth=1)
    how = {"fontsize": 7.5, "va": "bottom", "color": "#444444"}
    box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8}
    axis.annotate(
        words, (0.02, y), xycoords=("axes fraction", "data"), xytext=(0, 2), textcoords="offset points", bbox=box, **how
    )


def legend(figure: Any, axes: Any, most: int = 6) -> None:
    """Put one legend of all labels under the panels, in as many columns as fit."""
    named = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    columns = max(1, min(most, len(named), int(figure.get_figwidth() / (0.5 + 0.07 * max(map(len, named))))))
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=columns)
