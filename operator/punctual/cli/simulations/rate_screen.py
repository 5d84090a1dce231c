"""Held rates for people: one row for each target of each application."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from punctual.sim.rates.report import Held, Record, Result
from punctual.sim.rates.scenario import Scenario

NAMES = ("app", "from", "target", "settled", "rate", "in band", "period", "slice", "changes")


def show(result: Result, scenario: Scenario) -> None:
    """Print the table, and a line for each application."""
    console = Console()
    table = Table(box=None, header_style="dim")
    for name in NAMES:
        table.add_column(name, justify="left" if name == "app" else "right")
    for record in result.records:
        for n, held in enumerate(record.targets):
            table.add_row(*_cells(record, n, held))
    console.print(table)
    for record in result.records:
        found = record.document()
        error = "" if found["mean_error"] is None else f", mean error {100 * found['mean_error']:.2f} points"
        console.print(
            f"{record.app.id}: in band in {found['in_band_fraction']:.1%} of the iterations{error}, "
            f"{found['oscillations']} changes in band, {found['cpu_overhead']:.2%} of its CPU for switches"
        )
    many = f"{len(result.samples)} iterations in {scenario.duration:g} s"
    console.print(f"{many}; settled: iterations until the first in band", style="dim")


def _cells(record: Record, n: int, held: Held) -> tuple[str | Text, ...]:
    """Return the row of a target."""
    target = record.app.targets[n]
    after = held.samples[held.settled - 1 :] if held.settled else []
    settled = Text(f"in {held.settled}", "green") if held.settled else Text("not", "red")
    mean = f"{sum(s.rate for s in after) / len(after):.1%}" if after else ""
    inside = f"{sum(s.in_band(record.app.epsilon) for s in after) / len(after):.0%}" if after else ""
    last = held.samples[-1] if held.samples else None
    return (
        record.app.id if n == 0 else "",
        f"{target.at:g} s",
        f"{target.rate:.1%}",
        settled,
        mean,
        inside,
        f"{1e3 * held.period:.4g} ms",
        f"{1e3 * last.slice:.4g} ms" if last else "",
        str(held.changes),
    )
