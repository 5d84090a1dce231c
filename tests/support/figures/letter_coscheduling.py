"""Solsona 2002 to the letter: equations and examples that neither the operator nor its simulator needs.

What both need is in `punctual.theory.slices`, and in the model `stations` of `punctual.sim.coschedule`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, exp

DEFAULT_PRIORITY = 20
"""Static priority of all tasks in the thesis' Linux."""


@dataclass
class Fields:
    """What the coscheduling model adds to a task, as table 2.2 initializes it."""

    c: float = 0
    tc: float = 0
    pco: bool = False
    co: float = 0
    tco: float = 0
    th: float = 0
    tth: float = 0
    de: int = 0
    d: float = 0
    td: float = 0
    ovt: list[int] = field(default_factory=lambda: [0, 0])


MCO = 2
"""The global variable of table 2.2."""


def printed_index(last: float, mean: float, li: float = 10.0, n: float = 6.0) -> float:
    """Return Q_i by (2.1) with P = 1/(LI·N), as printed."""
    kept = exp(-1.0 / (li * n))
    return last * kept + mean * (1.0 - kept)


def delay(tasks: Sequence[Fields]) -> float:
    """Return TaskD, NodeD, or SystemD of these tasks, (2.4) to (2.6)."""
    return sum(task.td for task in tasks)


def degree(tasks: Sequence[Fields]) -> float:
    """Return TaskCoDe, NodeCoDe, or SystemCoDe of these tasks, (2.7) to (2.9): a ratio of sums, no mean of ratios."""
    run = sum(task.tco for task in tasks)
    return run / (run + sum(task.tth for task in tasks))


def smoothed(past: float, current: float, weight: float) -> float:
    """Return freq_r or freq_s, (2.10) and (2.11): ``weight`` is P, that of the past."""
    return weight * past + (1.0 - weight) * current


def frequency(receive: float, send: float) -> float:
    """Return freq, (2.12)."""
    return receive + send


def start_cost(wake: float, suspend: float, signal: float) -> float:
    """Return T_start of (3.1): suspend a local task, wake dts, signal, suspend dts, wake a distributed task."""
    return suspend + wake + signal + suspend + wake


stop_cost = start_cost
"""T_stop of (3.2) has the same terms, of the other tasks."""


def exchange_cost(switch: float, signal: float) -> float:
    """Return T_ex, (3.3), if waking and suspending cost the same."""
    return 4.0 * switch + signal


def overhead(switch: float, signal: float, period: float) -> float:
    """Return the part of a period that its two changes take."""
    return 2.0 * exchange_cost(switch, signal) / period


def useful_spin(latency: float, processing: float, switch: float) -> float:
    """Return the spin below which spinning is cheaper than blocking, (3.4): 2L + 4o + spin < 2L + 4o + 5C."""
    message = 2.0 * latency + 4.0 * processing
    return message + 5.0 * switch - message


def longest_spin(switch: float) -> float:
    """Return spin_max, (3.5)."""
    return 2.0 * switch


def packets(queued: Sequence[int]) -> int:
    """Return what algorithm 10 counts of the bytes that are queued at a task's sockets."""
    return sum(ceil(size / 4096) for size in queued)


def goodness(counter: int, priority: int, receive: float, send: float) -> float:
    """Return the weight of a normal task, algorithm 8 with its errors mended: 0 once its counter is used up."""
    if counter == 0:
        return 0.0
    freq = frequency(receive, send)
    return counter + priority + freq + DEFAULT_PRIORITY * (freq != 0)


Turns = Mapping[str, Sequence[str]]
"""By machine, its tasks in the order of their first turns; a task of A1 is called A1 on each of its machines."""
EXAMPLE: Turns = {
    "M1": ("A1", "L1", "L2"),
    "M2": ("A1", "A2", "A3", "L1"),
    "M3": ("A2", "A3", "L1", "L2"),
}
"""Section 1.4.1."""


def together(machines: Turns) -> tuple[dict[str, int], dict[str, int]]:
    """Run distributed tasks first, in one order on all machines (figure 1.4b): a slot with both tasks ends both.

    Returns the slot in which each application ends, and for how many slots distributed tasks have each machine.
    """
    ends: dict[str, int] = {}
    free, taken = dict.fromkeys(machines, 0), dict.fromkeys(machines, 0)
    for app in dict.fromkeys(task for tasks in machines.values() for task in tasks if task.startswith("A")):
        mine = [name for name, tasks in machines.items() if app in tasks]
        ends[app] = max(free[name] for name in mine) + 1
        for name in mine:
            free[name], taken[name] = ends[app], taken[name] + 1
    return ends, taken


def in_turns(machines: Turns) -> dict[str, int]:
    """Give each machine's tasks a slot in turn (figure 1.4a); return the slot in which each application ends.

    In a slot without its peer a task computes only, so it needs another one to communicate.
    """
    queues = {name: list(tasks) for name, tasks in machines.items()}
    left = {(name, task): 2 for name, tasks in machines.items() for task in tasks if task.startswith("A")}
    ends: dict[str, int] = {}
    slot = 0
    while left:
        slot += 1
        runs = {name: queue.pop(0) for name, queue in queues.items()}
        for name, task in runs.items():
            if (name, task) in left:
                both = list(runs.values()).count(task) == 2
                left[name, task] -= 2 if both else 1
        for name, task in runs.items():
            if left.get((name, task), 1) <= 0:
                del left[name, task]
                ends[task] = slot
            else:
                queues[name].append(task)
    return ends
