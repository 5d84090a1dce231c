"""Whether what a simulation says was executed can be: by the contract of `punctual simulate jobs`, not the code."""

from collections import defaultdict
from itertools import pairwise
from math import isclose

CLOSE = {"rel_tol": 1e-9, "abs_tol": 1e-9}


def flaws(trace, document, *, cost, one_port, speeds=None, redo=True, exact=True):
    """Return what is wrong. ``trace``: its lines as dicts; ``exact``: costs were as estimated, no job may be late.

    Every accepted job has to come to its end: no fault may take all processors for good. A transfer that takes longer
    than estimated is not interrupted by a reservation's.
    """
    jobs = {line["id"]: line for line in trace if line.get("kind", "job") == "job"}
    faults = [line for line in trace if line.get("kind") == "fault"]
    found = []
    chunks = defaultdict(list)
    for chunk in document["chunks"]:
        chunks[chunk["job"]].append(chunk)
        found += _flaws_of_chunk(chunk, jobs[chunk["job"]], cost, speeds, exact and not faults)
    found += _overlaps(document["chunks"], key=lambda c: c["processor"], begin="send_start", end="end")
    if one_port:
        found += _overlaps(document["chunks"], key=lambda _: "port", begin="send_start", end="send_end")
    found += _flaws_of_reservations(trace, document, one_port and exact, faults=faults)
    for fault in faults:
        found += _while_away(fault, document["chunks"])
    accepted = {d["id"] for d in document["decisions"] if d["accepted"] and d["id"] in jobs}
    if set(chunks) - accepted:
        found.append(f"executed but not accepted: {set(chunks) - accepted}")
    ends = {job["id"]: job for job in document["jobs"]}
    if set(ends) != accepted:
        found.append(f"accepted {sorted(accepted)}, ended {sorted(ends)}")
    for name in accepted & set(ends):
        found += _flaws_of_job(jobs[name], ends[name], chunks[name], late_is_wrong=exact and not faults, redo=redo)
    return found


def _flaws_of_chunk(chunk, job, cost, speeds, whole):
    if not chunk["send_start"] <= chunk["send_end"] <= chunk["end"]:
        yield f"{chunk} ends before its transfer, or its transfer before it begins"
    if chunk["load"] < 0.0:
        yield f"{chunk} has less than no load"
    chi, tau, theta_cm, theta_cp = (
        cost[name] if job.get(name) is None else job[name] for name in ("chi", "tau", "theta_cm", "theta_cp")
    )
    chi *= speeds[chunk["processor"]] if speeds else 1.0
    if chunk["send_start"] < job["arrival"] - 1e-9:
        yield f"{chunk} begins before its job arrives"
    if not whole:
        return
    if not isclose(chunk["send_end"], chunk["send_start"] + theta_cm + chunk["load"] * tau, **CLOSE):
        yield f"{chunk} sends for another time than its load takes"
    if not isclose(chunk["end"], chunk["send_end"] + theta_cp + chunk["load"] * chi, **CLOSE):
        yield f"{chunk} computes for another time than its load takes"


def _overlaps(chunks, *, key, begin, end):
    lines = defaultdict(list)
    for chunk in chunks:
        lines[key(chunk)].append(chunk)
    for name, line in lines.items():
        line.sort(key=lambda c: (c[begin], c[end]))
        for a, b in pairwise(line):
            if b[begin] < a[end] - 1e-9 * max(1.0, a[end]):
                yield f"on {name} overlap {a} and {b}"


def _flaws_of_reservations(trace, document, one_port, *, faults):
    asked = {line["id"]: line for line in trace if line.get("kind") == "reservation"}
    windows, sending = [], []
    for d in document["decisions"]:
        if d["id"] not in asked or not d["accepted"]:
            continue
        line = asked[d["id"]]
        if len(set(d["processors"])) != line["processors"] and not faults:  # they may have taken some
            yield f"{line} has got {d['processors']}"
        sent = line["start"] + (line["end"] - line["start"]) * line.get("io_ratio", 0.0)
        for p in d["processors"]:
            taken = [f["arrival"] for f in faults if p in f["processors"] and f["arrival"] >= line["start"]]
            windows.append({"processor": p, "send_start": line["start"], "end": min([line["end"], *taken])})
        sending += [{"send_start": line["start"], "send_end": sent}] if sent > line["start"] else []
    # what is executed on a processor, or sent, between two windows of nobody is no concern here
    if windows:
        yield from _overlaps(
            [*document["chunks"], *windows], key=lambda c: c["processor"], begin="send_start", end="end"
        )
    if one_port and sending:
        yield from _overlaps([*document["chunks"], *sending], key=lambda _: "port", begin="send_start", end="send_end")


def _while_away(fault, chunks):
    until = fault.get("until") or float("inf")
    for c in chunks:
        if c["processor"] in fault["processors"] and c["send_start"] < until and c["end"] > fault["arrival"] + 1e-9:
            yield f"{c} runs while its processor is away"


def _flaws_of_job(job, end, chunks, *, late_is_wrong, redo):
    deadline = job["arrival"] + job["deadline"]
    loads = sum(c["load"] for c in chunks)
    if not isclose(loads, job["load"], rel_tol=1e-9):
        yield f"{job['id']}: {loads} of {job['load']} done"
    if end["finish"] is None:
        yield f"{job['id']}: accepted, and never done"
        return
    last = max(c["end"] for c in chunks if c["load"] > 0)
    if not isclose(last, end["finish"], **CLOSE):
        yield f"{job['id']}: the last chunk ends at {last}, finish is {end['finish']}"
    if end["met"] != (end["finish"] <= deadline * (1 + 1e-9)):
        yield f"{job['id']}: met is {end['met']}, deadline {deadline}, finish {end['finish']}"
    if late_is_wrong and not end["met"]:
        yield f"{job['id']}: late, finish {end['finish']}, deadline {deadline}"
