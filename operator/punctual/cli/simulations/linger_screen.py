"""Simulated guests for people: what they got, what it cost the hosts, and where their time went."""

from rich.console import Console
from rich.table import Table

from punctual.sim.linger.report import Result


def show(result: Result) -> None:
    """Print the numbers, and a table of the guests' states."""
    console = Console()
    found = result.document()
    console.print(f"{result.policy}: guests got the work of {found['guest_throughput']:.1f} of {result.nodes} nodes")
    console.print(
        f"hosts used {found['host_use']:.1%} of the nodes, which were idle {found['idle_share']:.1%} of the time; "
        f"guests delayed them by {found['host_slowdown']:.2%} of the time, {found['host_delay_ratio']:.2%} of their own"
    )
    many = len(result.completions)
    done = "no guest was done"
    if many:
        mean, most = found["guest_mean_completion"], found["guest_p95_completion"]
        done = f"{many} guests were done, {mean:.0f} s after they were submitted (95 of 100 within {most:.0f} s)"
    console.print(f"{done}; {result.migrations} moves, {result.evictions} back to the queue")
    table = Table(box=None, header_style="dim")
    table.add_column("state")
    table.add_column("share of the guests' time", justify="right")
    total = sum(result.states.values()) or 1.0
    for state, seconds in result.states.items():
        table.add_row(state, f"{seconds / total:.1%}")
    console.print(table)
