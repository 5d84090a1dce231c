"""Jobs of a simulated node for people: one row per job, and the ratios."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from punctual.sim.plants.report import Ended, Result
from punctual.sim.plants.scenario import PlantJob

SHOWN = 40
"""Maximum jobs that the table shows."""


def show(result: Result) -> None:
    """Print the table and a line of ratios."""
    console = Console()
    table = Table(box=None, header_style="dim")
    for name in ("job", "work", "deadline", "answer", "finish", "late", "settled", "overshoot"):
        table.add_column(name, justify="left" if name in {"job", "answer"} else "right")
    for job in result.scenario.jobs[:SHOWN]:
        table.add_row(*_cells(job, result.ended[job.id]))
    console.print(table)
    if (more := len(result.scenario.jobs) - SHOWN) > 0:
        console.print(f"… and {more} more", style="dim")
    found = result.metrics
    met = "no job was accepted" if found["met_ratio"] is None else f"met {found['met_ratio']:.1%} of their deadlines"
    console.print(
        f"accepted {found['accepted']} of {found['offered']}, {met}, "
        f"late ones late by {found['mean_late_fraction']:.1%} of their deadlines"
    )


def _cells(job: PlantJob, end: Ended) -> tuple[str | Text, ...]:
    """Return a job's row."""
    work = job.id, f"{job.work:.6g}", f"{job.deadline:.6g}"
    if not end.accepted:
        return *work, Text("refused", "yellow"), "", "", "", ""
    finish = "never" if end.finish is None else f"{end.finish:.6g}"
    late = Text("in time", "green") if end.met else Text(f"{end.late_fraction:.1%}", "red")
    settled = "" if end.settling_periods is None else f"in {end.settling_periods}"
    overshoot = "" if end.overshoot is None else f"{max(0.0, end.overshoot):.1%}"
    return *work, Text("accepted", "green"), finish, late, settled, overshoot
