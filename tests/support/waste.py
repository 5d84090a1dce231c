"""Processor time that brought nothing, by cause: by a trace, its true costs and what was executed of it."""

from collections import defaultdict

FAULT, INPUT, CUT, BRIEF, LOST = "fault", "input", "cut", "brief", "lost"
"""Why a chunk took longer than its load: its processor went; it was asked to leave before it computed; it gave back a
part for which it had the input; it had computed for less than `READ` when a reserved window began; or, with no such
reason, what it had computed was thrown away."""
READ = 1.0
"""Seconds between two reads of an offer by a worker (docs/simulate.md)."""


def waste(trace, document, costs):
    """Return the busy seconds, and the seconds wasted by cause. ``costs``: by job, what it truly costs."""
    faults = [line for line in trace if line.get("kind") == "fault"]
    begins = _windows(trace, document)
    busy, wasted = 0.0, defaultdict(float)
    for chunk in document["chunks"]:
        cost, seconds = costs[chunk["job"]], chunk["end"] - chunk["send_start"]
        busy += seconds
        beyond = seconds - (cost.seconds(chunk["load"]) if chunk["load"] else 0.0)
        if beyond > 1e-6 * max(1.0, chunk["end"]):
            wasted[_cause(chunk, faults, begins, cost)] += beyond
    return busy, wasted


def _windows(trace, document):
    """Return the processor and the begin of each window."""
    starts = {line["id"]: line["start"] for line in trace if line.get("kind") == "reservation"}
    accepted = [d for d in document["decisions"] if d["accepted"] and d["id"] in starts]
    return [(p, starts[d["id"]]) for d in accepted for p in d["processors"]]


def _cause(chunk, faults, begins, cost):
    near = 1e-9 * max(1.0, chunk["end"])
    if any(chunk["processor"] in f["processors"] and abs(f["arrival"] - chunk["end"]) <= near for f in faults):
        return FAULT
    if chunk["load"]:
        return CUT
    computed = chunk["end"] - chunk["send_end"] - cost.theta_cp
    if computed <= near:
        return INPUT
    at_window = any(p == chunk["processor"] and abs(start - chunk["end"]) <= near for p, start in begins)
    return BRIEF if at_window and computed < READ else LOST
