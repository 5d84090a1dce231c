"""Coscheduled applications and tasks for people."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from punctual.sim.coschedule.report import Report, SlicesReport, StationsReport, TableReport


def show(report: Report) -> None:
    """Print tables of a report."""
    console = Console()
    match report:
        case SlicesReport():
            _show_slices(console, report)
        case StationsReport():
            _show_stations(console, report)
        case TableReport():
            _show_table(console, report)


def _show_slices(console: Console, report: SlicesReport) -> None:
    table = _table("app", "rate", "iterations", "CPU", "of it waiting", "all could run")
    for app in report.apps:
        parts = f"{app.cpu:.1%}", f"{app.spun:.1%}", f"{app.overlap:.1%}"
        table.add_row(app.id, f"{app.rate:.1%}", str(app.iterations), *parts)
    console.print(table)
    table = _table("node", "left to local work")
    for node in report.nodes:
        table.add_row(str(node.node), f"{node.local:.1%}")
    console.print(table)
    console.print("rate: of that alone; CPU: of one, in the mean of the ranks", style="dim")


def _show_stations(console: Console, report: StationsReport) -> None:
    table = _table("tasks", "served", "return", "wait")
    table.add_row("distributed", str(report.distributed), _number(report.dret), _number(report.dwait))
    table.add_row("local", str(report.local), _number(report.lret), _number(report.lwait))
    console.print(table)
    console.print(
        f"SystemCoDe {_number(report.system_code, 3)}; a local task waits {_number(report.task_d)} for those that have "
        f"overtaken it; {_number(report.queue)} tasks are at a station"
    )


def _show_table(console: Console, report: TableReport) -> None:
    policies = list(dict.fromkeys(letter.policy for letter in report.letters))
    cells = {(letter.parameter, letter.policy): letter for letter in report.letters}
    table = _table("SystemCoDe", *policies)
    for parameter in dict.fromkeys(letter.parameter for letter in report.letters):
        row = []
        for policy in policies:
            if letter := cells.get((parameter, policy)):
                words = f"{letter.change:+.3f} {letter.letter}"
                row.append(
                    Text(words if letter.equal else f"{words} ({letter.published})", "" if letter.equal else "yellow")
                )
            else:
                row.append(Text())
        table.add_row(parameter, *row)
    console.print(table)
    console.print(
        f"{sum(letter.equal for letter in report.letters)} of {len(report.letters)} letters as published; else the "
        "published one in brackets. LIN: mean change of SystemCoDe; others: of their lead over LIN",
        style="dim",
    )


def _number(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _table(first: str, *names: str) -> Table:
    table = Table(box=None, header_style="dim")
    table.add_column(first)
    for name in names:
        table.add_column(name, justify="right")
    return table
