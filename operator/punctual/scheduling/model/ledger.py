"""Which unit is whose: the moves a job's record can make when a chunk begins, ends, fails or is cut.

Each move takes a record and returns the next; a unit is completed, owned by one chunk, or remaining, never two of them
(``JobRecord.check``). Accounting is exactly once because only an owned range can be accounted and it is owned no more
after that.
"""

from punctual.scheduling.model.job import Chunk, JobRecord, Restart
from punctual.scheduling.model.ranges import Range, Ranges

MOST_UNITS = 2**63
"""No unit has a number so high."""
MOST = 4000
"""Entries in any list of a job's status, below what its schema takes: completed ranges and chunks together, and counts.
What is completed has a part more only where a chunk has become one: it is enough not to make more chunks than that."""


def remaining(units: int, record: JobRecord) -> Ranges:
    """Units neither completed nor owned by a chunk."""
    whole = Ranges.of((0, units))
    if not record.chunks and not record.completed:  # most of those that wait
        return whole
    owned = ((c.begin, c.end) for c in record.chunks if c.kind != "Reduce")
    return whole - (record.completed | Ranges.of(*owned))


def next_attempt(record: JobRecord, begin: int, end: int) -> int:
    """Return the attempt number for these units: one more than the most any of them has seen."""
    return record.tried.largest(begin, end) + 1


def most_chunks(record: JobRecord) -> int:
    """Return how many chunks the job may own at a time.

    One it may always have: at the begin of a gap, where what it does has no part of its own among the completed.
    """
    return max(1, MOST - len(record.completed.parts))


def account(record: JobRecord, chunk: Chunk) -> JobRecord:
    """Take its units as done, as the chunk ended well; what was counted about them is forgotten."""
    completed = record.completed
    return record._replace(
        chunks=record.others(chunk),
        completed=completed.plus(Range(chunk.begin, chunk.end)) if chunk.size else completed,
        failed=record.failed.drop(chunk.begin, chunk.end),
        tried=record.tried.drop(chunk.begin, chunk.end),
    )


def lose(record: JobRecord, chunk: Chunk, *, durable: int = 0, own: bool = False) -> JobRecord:
    """End the attempt without success: ``durable`` units from its begin count, the rest is to be done again.

    ``own``: the work failed by its own doing, which chunkRetries bounds; else a node, an eviction or we ended it.
    """
    kept = chunk.begin + min(max(durable, 0), chunk.size)
    end = chunk.end
    return record._replace(
        chunks=record.others(chunk),
        completed=record.completed | Ranges.of((chunk.begin, kept)),
        failed=record.failed.drop(chunk.begin, kept).add(kept, end, int(own)).coarse(MOST),
        # every unit, not only the least tried: a pod's name is made of begin and attempt, and must be new; also where
        # it gave its whole range back, or its pod would be taken for that of the next to begin there
        tried=record.tried.drop(chunk.begin, kept)
        .raise_to(kept, end if chunk.size else end + 1, chunk.attempt)
        .coarse(MOST),
    )


def within(record: JobRecord, units: int) -> JobRecord:
    """Forget what was done of units that the job has no more, and what has failed of them.

    Their attempts are not forgotten: names of pods are made of them.
    """
    beyond = Ranges.of((units, MOST_UNITS))
    # what has failed at ``units`` itself may be reduce
    if not record.completed & beyond and not record.failed.largest(units + 1, MOST_UNITS):
        return record
    return record._replace(completed=record.completed - beyond, failed=record.failed.drop(units, MOST_UNITS))


def cut(record: JobRecord, chunk: Chunk, at: int) -> JobRecord:
    """Cut it at the end the worker will honour: the tail is nobody's again. Above the owned end nothing changes."""
    end = max(chunk.begin, min(at, chunk.end))
    return record.changed(chunk._replace(end=end, offered=None))


def durable(restart: Restart, done: int | None) -> int:
    """Units that survive the end of their pod: under Resume those reported done, under Redo none."""
    return done or 0 if restart == "Resume" else 0
