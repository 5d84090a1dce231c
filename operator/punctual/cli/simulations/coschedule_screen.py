"""Coscheduled applications for people: what they got, and what they left."""

from rich.console import Console
from rich.table import Table

from punctual.sim.coschedule.report import SlicesReport


def show(report: SlicesReport) -> None:
    """Print a row for each application, and one for each node."""
    console = Console()
    table = _table("app", "rate", "iterations", "CPU", "spent waiting", "all could run")
    for app in report.apps:
        parts = f"{app.cpu:.1%}", f"{app.spun:.1%}", f"{app.overlap:.1%}"
        table.add_row(app.id, f"{app.rate:.1%}", str(app.iterations), *parts)
    console.print(table)
    table = _table("node", "left to local work")
    for node in report.nodes:
        table.add_row(str(node.node), f"{node.local:.1%}")
    console.print(table)
    console.print("rate: of the rate alone; CPU: of one, in the mean of the ranks", style="dim")


def _table(*names: str) -> Table:
    table = Table(box=None, header_style="dim")
    for name in names:
        table.add_column(name, justify="left" if name in {"app", "node"} else "right")
    return table
