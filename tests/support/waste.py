"""Processor time that brought nothing, by cause: by a trace, its true costs and what was executed of it."""

from collections import defaultdict

FAULT, INPUT, CUT, LOST = "fault", "input", "cut", "lost"
"""Why a chunk took longer than its load: its processor went; it was asked to leave before it computed; it gave back a
part whose input it had; or, with no such reason, what it had computed was thrown away."""


def waste(trace, document, costs):
    """Return the busy seconds, and the seconds wasted by cause. ``costs``: by job, what it truly costs."""
    faults = [line for line in trace if line.get("kind") == "fault"]
    busy, wasted = 0.0, defaultdict(float)
    for chunk in document["chunks"]:
        cost, seconds = costs[chunk["job"]], chunk["end"] - chunk["send_start"]
        busy += seconds
        beyond = seconds - (cost.seconds(chunk["load"]) if chunk["load"] else 0.0)
        if beyond > 1e-6 * max(1.0, chunk["end"]):
            wasted[_cause(chunk, faults, cost)] += beyond
    return busy, wasted


def _cause(chunk, faults, cost):
    near = 1e-9 * max(1.0, chunk["end"])
    if any(chunk["processor"] in f["processors"] and abs(f["arrival"] - chunk["end"]) <= near for f in faults):
        return FAULT
    if chunk["load"]:
        return CUT
    return INPUT if chunk["end"] <= chunk["send_end"] + cost.theta_cp + near else LOST
