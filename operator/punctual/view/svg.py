"""A timeline as SVG: a row for each processor, a colour for each job, deadlines as lines, a table beneath.

Plain text without a library. It has a white background, so it is legible on light and dark pages.
"""

import time
from collections.abc import Iterable
from html import escape
from typing import Final

from punctual.view.elapsed import clock
from punctual.view.timeline import Bar, TimelineView

COLOURS: Final = ("#3b6fb6", "#d9822b", "#4c9a5f", "#8c5fa8", "#b84a4a", "#5a8f9c", "#9a8438", "#6b6b6b")
WIDTH: Final = 1000
LEFT: Final = 150
RIGHT: Final = 30
ROW: Final = 18
GAP: Final = 10
"""Pixels between two nodes."""
STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
"""Possible seconds between two ticks of the axis."""
SHOWN: Final = 40
"""Maximum jobs in the table, and with a line for their deadline."""
GREY: Final = "#6b7280"
INK: Final = "#1f2933"
COLUMNS: Final = (
    ("job", 24),
    ("answer", 180),
    ("deadline", 430),
    ("forecast", 550),
    ("finished", 670),
    ("slack", 790),
)


class _Scale:
    """Converts seconds to positions in the picture."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin, self.span = begin, max(1.0, end - begin) * 1.02
        self.per_second = (WIDTH - LEFT - RIGHT) / self.span

    def __call__(self, moment: float) -> float:
        return LEFT + (moment - self.begin) * self.per_second


def svg(line: TimelineView, *, title: str = "", pale: str = "the pod starts", dated: bool = True) -> str:
    """Return the picture. ``pale``: the meaning of the first part of a bar; ``dated``: times count from 1970."""
    x = _Scale(line.begin, line.end)
    colour = {job.uid: COLOURS[i % len(COLOURS)] for i, job in enumerate(line.jobs)}
    seen = line.jobs[:SHOWN]
    flags = [job for job in seen if job.deadline is not None and job.finish is not None and job.deadline <= line.end]
    top = 46 + 16 * len(flags)
    tops: dict[str, int] = {}
    bottom = top
    for node, rows in line.rows:
        tops[node] = bottom
        bottom += rows * ROW + GAP
    height = bottom + 62 + 22 * min(len(line.jobs), SHOWN)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            'font-family="ui-sans-serif, system-ui, Helvetica, Arial, sans-serif" font-size="12">'
        ),
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        _text(24, 26, title or "Chunks over processors", size=15, weight=600),
    ]
    if dated:
        begin = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(line.begin))
        parts.append(_text(WIDTH - RIGHT, 26, begin, anchor="end", fill=GREY))
    parts += _axis(x, top - 6, bottom - GAP, line)
    parts += _nodes(line, tops)
    parts += [part for bar in line.bars for part in _bar(bar, x, tops[bar.node], colour[bar.job])]
    for i, job in enumerate(flags):
        assert job.deadline is not None
        parts += _flag(f"{job.name} due", x(job.deadline), 46 + 16 * i, bottom - GAP, colour[job.uid])
    parts += _table(line, bottom + 32, colour, pale)
    return "\n".join([*parts, "</svg>", ""])


def _axis(x: _Scale, top: float, bottom: float, line: TimelineView) -> Iterable[str]:
    wanted = x.span / 10
    step = next((s for s in STEPS if s >= wanted), STEPS[-1])
    for second in range(0, int(x.span) + 1, step):
        at = x(line.begin + second)
        yield f'<path d="M{at:.1f} {top:.1f}V{bottom:.1f}" stroke="#e5e7eb"/>'
        yield _text(at, bottom + 16, clock(second), anchor="middle", fill=GREY, size=11)


def _nodes(line: TimelineView, tops: dict[str, int]) -> Iterable[str]:
    for node, rows in line.rows:
        middle = tops[node] + rows * ROW / 2 + 4
        yield _text(LEFT - 12, middle, node if len(node) <= 20 else f"{node[:9]}…{node[-10:]}", anchor="end")
        for row in range(rows + 1):
            at = tops[node] + row * ROW
            yield f'<path d="M{LEFT} {at}H{WIDTH - RIGHT}" stroke="#eef0f3"/>'


def _bar(bar: Bar, x: _Scale, top: float, colour: str) -> Iterable[str]:
    y, high = top + bar.row * ROW + 2, ROW - 4
    begin, end = x(bar.created), max(x(bar.created) + 1.5, x(bar.ended))
    runs = x(bar.started) if bar.started is not None else end
    planned = f", planned to end {clock(bar.planned_end - x.begin)}" if bar.planned_end is not None else ""
    told = f"{bar.label} on {bar.node}: {clock(bar.created - x.begin)} to {clock(bar.ended - x.begin)}{planned}"
    yield f"<g><title>{escape(told)}</title>"
    # the start-up is pale: no unit is processed in it
    yield _rect(begin, y, runs - begin, high, f'fill="{colour}" opacity=".3"')
    stroke = ' stroke="#b91c1c" stroke-width="2"' if bar.failed else ""
    shade = ' opacity=".65"' if bar.kind in {"Pilot", "Reduce"} else ""
    yield _rect(runs, y, end - runs, high, f'fill="{colour}"{shade}{stroke}')
    if end - runs > 7 * len(bar.label) + 6:
        yield _text((runs + end) / 2, y + 11, bar.label, anchor="middle", fill="#ffffff", size=10)
    yield "</g>"


def _flag(label: str, at: float, y: float, bottom: float, colour: str) -> Iterable[str]:
    right = at > WIDTH - RIGHT - 8 * len(label)
    yield f'<path d="M{at:.1f} {y:.1f}V{bottom:.1f}" stroke="{colour}" stroke-width="1.5" stroke-dasharray="5 3"/>'
    side, anchor = (-5, "end") if right else (5, "start")
    # a halo, for lines of other jobs behind it
    halo = 'stroke="#ffffff" stroke-width="4" paint-order="stroke"'
    yield _text(at + side, y + 10, label, anchor=anchor, fill=colour, weight=600, size=11, more=halo)


def _table(line: TimelineView, y: float, colour: dict[str, str], pale: str) -> Iterable[str]:
    for name, at in COLUMNS:
        yield _text(at, y, name, fill=GREY, size=11)
    yield _text(WIDTH - RIGHT, y, f"pale: {pale}", anchor="end", fill=GREY, size=11)
    for i, job in enumerate(line.jobs[:SHOWN], start=1):
        base = y + 22 * i
        yield f'<rect x="{COLUMNS[0][1]}" y="{base - 10}" width="12" height="12" rx="2" fill="{colour[job.uid]}"/>'
        promised = line.promised.get(job.uid)
        answer = "guest" if job.guest else "promised"
        if job.state in {"Refused", "Failed", "Missed", "Late"}:
            answer = job.reason
        if job.state == "Refused" and job.offered:
            answer += f", offered {job.offered}"
        cells = [
            job.name,
            answer,
            "none" if job.guest else _since(job.deadline, line.begin),
            _since(promised, line.begin),
            _since(job.finished, line.begin),
            "" if job.slack is None or job.finished is None else clock(job.slack),
        ]
        for n, ((_, left), cell) in enumerate(zip(COLUMNS, cells, strict=True)):
            bad = n in {1, 5} and job.state in {"Failed", "Missed", "Late"}
            fill = "#b91c1c" if bad else INK
            yield _text(left + (20 if n == 0 else 0), base, cell, fill=fill, weight=600 if n == 0 else 400)


def _since(moment: float | None, begin: float) -> str:
    return "" if moment is None else clock(moment - begin)


def _rect(x: float, y: float, width: float, height: float, style: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{height}" {style}/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    fill: str = INK,
    size: int = 12,
    weight: int = 400,
    more: str = "",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}" '
        f'font-weight="{weight}" {more}>{escape(text)}</text>'
    )
