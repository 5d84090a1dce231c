"""Whether chunks answer when they are asked to leave, and what leaving costs them."""

from typing import Final

from punctual.guests.guest import ANSWER, GuestState
from punctual.scheduling.model.job import Chunk

DEAF: Final = 600.0
"""Seconds for which a job counts as deaf after an offer that was not answered in time."""
LATE: Final = 2.0
"""Seconds by which what agents report, and what they are told, may be late."""


def missed(now: float, st: GuestState, chunk: Chunk) -> bool:
    """Whether a chunk was asked to leave and has not answered in time."""
    known = st.watch(chunk)
    return known.offered_at is not None and not known.answered and now - known.offered_at > ANSWER


def listen(now: float, st: GuestState, chunk: Chunk) -> None:
    """Note if a chunk has not answered an offer in time."""
    known = st.watch(chunk)
    if not known.missed and missed(now, st, chunk):
        known.missed, st.missed_at = True, now


def deaf(now: float, st: GuestState) -> bool:
    """Whether a job's chunks answer no offers, by the last that was answered or was to be."""
    return abs(now - st.missed_at) <= DEAF


def leaves(now: float, st: GuestState, chunk: Chunk) -> bool:
    """Whether a chunk has handed back its rest, or was asked to and may still answer."""
    asked = st.watch(chunk).offered_at is not None
    return chunk.end < chunk.origin or (asked and not missed(now, st, chunk))


def in_time(now: float, st: GuestState, chunk: Chunk, rate: float, *, seconds: float) -> bool:
    """Whether a chunk that must leave and works at a rate loses nothing if it is left for some seconds.

    That is: if it ends the unit that it has begun, or all of its units if a pod that is killed keeps none.
    """
    known = st.watch(chunk)
    silent = deaf(now, st) or (known.offered_at is not None and not known.answered)
    if known.done >= chunk.size:
        needed = 0.0
    elif silent and st.job.restart == "Redo":
        needed = st.ahead(chunk)
    else:
        begun = min(st.cpu_per_unit, max(0.0, known.cpu - known.done * st.cpu_per_unit))
        needed = st.cpu_per_unit - begun
    return needed <= seconds * rate * st.job.cores


def at_stake(now: float, st: GuestState, chunk: Chunk, rate: float) -> float:
    """Return the CPU seconds that are probably lost if a chunk that works at a rate is told to leave."""
    return 0.0 if in_time(now, st, chunk, rate, seconds=ANSWER - LATE) else st.loss(chunk)
