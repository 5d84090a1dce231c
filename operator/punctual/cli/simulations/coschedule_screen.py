"""Coscheduled applications and tasks for people."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from punctual.sim.coschedule.report import Letter, Report, SlicesReport, StationsReport, TableReport


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
    parameters = list(dict.fromkeys(letter.parameter for letter in report.letters))
    cells = {(letter.policy, letter.parameter): letter for letter in report.letters}
    table = _table("", *parameters)
    for policy in dict.fromkeys(letter.policy for letter in report.letters):
        table.add_row(policy, *(_letter(cells.get((policy, parameter))) for parameter in parameters))
    console.print(table)
    equal = sum(letter.equal for letter in report.letters)
    console.print(f"{equal} of {len(report.letters)} letters as published; else the published one is in brackets")
    console.print("LIN: mean change of SystemCoDe; others: of their lead over LIN", style="dim")


def _letter(letter: Letter | None) -> Text:
    if letter is None:
        return Text()
    words = f"{letter.change:+.3f} {letter.letter}"
    return Text(words) if letter.equal else Text(f"{words} ({letter.published})", "yellow")


def _number(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _table(first: str, *names: str) -> Table:
    table = Table(box=None, header_style="dim")
    table.add_column(first)
    for name in names:
        table.add_column(name, justify="right")
    return table
