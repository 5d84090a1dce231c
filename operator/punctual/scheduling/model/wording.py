"""Formats numbers for messages to people."""

from collections.abc import Sequence

SAID = 300
"""Maximum characters of a container's, a step's or the cluster's failure message that an event passes on."""


def span(seconds: float) -> str:
    """Write seconds as Kubernetes users do: 2583.4 -> 43m3s, 3.42 -> 3.4s."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (secs, "s")]
    return "".join(f"{n}{unit}" for n, unit in parts if n) or "0s"


def some(count: int, noun: str) -> str:
    """Write a count with its noun: 1 unit, 2 units."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(parts: Sequence[str]) -> str:
    """Write a list: 4 CPU, 16Gi and 1 pod."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def amount(count: int) -> str:
    """Write bytes as Kubernetes users do, to three digits: 2Gi, 512Mi, 1.17Gi."""
    size = float(count)
    for unit in ("", "Ki", "Mi", "Gi", "Ti"):
        if size < 1024:
            return f"{size:.3g}{unit}" if size < 1000 else f"{size:.0f}{unit}"
        size /= 1024
    return f"{size:.3g}Pi"


def last_words(log: str) -> str:
    """Return the last lines of a log as one line, separated by bars: at most about `SAID` characters."""
    lines = [line.strip() for line in log[-SAID:].splitlines()]
    if len(log) > SAID and len(lines) > 1:
        lines = lines[1:]  # it was cut
    return " | ".join(line for line in lines if line)
