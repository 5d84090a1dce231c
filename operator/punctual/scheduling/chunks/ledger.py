"""Ledger of a job's units: the transitions of its record when a chunk begins, ends, fails or is cut.

Each function takes a record and returns the next one. A unit is completed, owned by one chunk, or remaining, never two
of them (``JobRecord.check``). Each unit is accounted exactly once, because only an owned range can be accounted, and it
is no longer owned after that.
"""

from punctual.scheduling.model.job import Chunk, Job, JobRecord, Restart
from punctual.scheduling.model.pilots import UNIT_PILOTS
from punctual.scheduling.model.ranges import Range, Ranges

MOST_UNITS = 2**63
"""Upper limit of unit numbers."""
MOST = 4000
"""Maximum entries in any list of a job's status, below the limit of its schema: completed ranges and chunks together,
and counts.

The completed units get one more part only where a chunk has completed, so limiting the chunks is enough.
"""


def remaining(units: int, record: JobRecord) -> Ranges:
    """Return the units that are neither completed nor owned by a chunk."""
    whole = Ranges.of((0, units))
    if not record.chunks and not record.completed:  # most waiting jobs
        return whole
    owned = ((c.begin, c.end) for c in record.chunks if c.kind != "Reduce")
    return whole - (record.completed | Ranges.of(*owned))


def has_begun(job: Job, record: JobRecord) -> bool:
    """Whether chunks have been created for the job's promise; pilots come before it."""
    if not record.pilots or (job.unit_pods and job.cost is not None):
        return record.started is not None
    piloted = sum(pilot.units for pilot in record.pilots)
    if job.unit_pods:  # samples of other units are among them
        piloted = min(piloted, UNIT_PILOTS)
    return any(c.kind != "Pilot" for c in record.chunks) or record.completed.total > piloted


def next_attempt(record: JobRecord, begin: int, end: int) -> int:
    """Return the attempt number for these units: one more than the most attempts of any of them."""
    return record.tried.largest(begin, end) + 1


def most_chunks(record: JobRecord) -> int:
    """Return how many chunks the job may own at a time.

    One is always allowed: at the begin of a gap, its units add no new part to the completed ones.
    """
    return max(1, MOST - len(record.completed.parts))


def account(record: JobRecord, chunk: Chunk) -> JobRecord:
    """Account the units of a successful chunk as completed; their counts are dropped."""
    completed = record.completed
    return record._replace(
        chunks=record.others(chunk),
        completed=completed.plus(Range(chunk.begin, chunk.end)) if chunk.size else completed,
        failed=record.failed.drop(chunk.begin, chunk.end),
        tried=record.tried.drop(chunk.begin, chunk.end),
    )


def lose(record: JobRecord, chunk: Chunk, *, durable: int = 0, own: bool = False) -> JobRecord:
    """End an attempt without success: ``durable`` units from its begin count, the rest must run again.

    ``own``: the workload caused the failure, which chunkRetries limits; otherwise a node, an eviction or the operator
    did.
    """
    kept = chunk.begin + min(max(durable, 0), chunk.size)
    end = chunk.end
    return record._replace(
        chunks=record.others(chunk),
        completed=record.completed | Ranges.of((chunk.begin, kept)),
        failed=record.failed.drop(chunk.begin, kept).add(kept, end, int(own)).coarse(MOST),
        # Every unit is counted, not only the least tried: a pod's name is made of begin and attempt and must be new.
        # This also holds if the chunk gave its whole range back: otherwise its pod would be taken for that of the next
        # chunk to begin there.
        tried=record.tried.drop(chunk.begin, kept)
        .raise_to(kept, end if chunk.size else end + 1, chunk.attempt)
        .coarse(MOST),
    )


def within(record: JobRecord, units: int) -> JobRecord:
    """Drop the completed units and the failures of units that the job no longer has.

    Their attempts are kept: the names of pods are made of them.
    """
    beyond = Ranges.of((units, MOST_UNITS))
    # A failure at ``units`` itself may be that of reduce.
    if not record.completed & beyond and not record.failed.largest(units + 1, MOST_UNITS):
        return record
    return record._replace(completed=record.completed - beyond, failed=record.failed.drop(units, MOST_UNITS))


def cut(record: JobRecord, chunk: Chunk, at: int) -> JobRecord:
    """End the chunk at the end that the worker will honour: the tail remains. An end above its own changes nothing."""
    end = max(chunk.begin, min(at, chunk.end))
    return record.changed(chunk._replace(end=end, offered=None, late=False))


def durable(restart: Restart, done: int | None) -> int:
    """Return the units that survive the end of their pod: under Resume the reported ones, under Redo none."""
    return done or 0 if restart == "Resume" else 0
