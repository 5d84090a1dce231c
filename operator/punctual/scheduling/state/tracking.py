"""Tracking: sets each job's ETA and its condition OnTrack, both from one filtered forecast.

A single report is noise, so the condition changes only after several forecasts in a row that contradict it:
``LATE_AFTER`` to lose it, ``BACK_AFTER`` to get it back. Until then the ETA stays on the condition's side of the
deadline. So a status never shows OnTrack=True beside an ETA after the deadline. Once the deadline has passed, there is
nothing to filter.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from punctual import reasons
from punctual.scheduling.model.actions import Emit
from punctual.scheduling.model.timing import LOOK
from punctual.scheduling.model.wording import span
from punctual.scheduling.state.forecast import REPORT, Forecast, Setting, forecast, job_pace
from punctual.scheduling.state.job_state import JobState, helpless
from punctual.scheduling.state.pool_state import PoolState
from punctual.theory.tolerance import tolerance
from punctual.verdict import Verdict

LATE_AFTER: Final = 3
"""Forecasts in a row, a report apart, that must be after the deadline at their best until a job is late."""
BACK_AFTER: Final = 5
"""Forecasts in a row, a report apart, that must be before the deadline until a late job is on track again."""
BEYOND: Final = 1.0
"""Seconds after the deadline of the earliest ETA that a late job shows."""
MOVED: Final = 0.05
"""Part of the time left by which an ETA must move, and at least `REPORT` seconds, to be written for itself alone."""


class Hindrance(NamedTuple):
    """Fact for which a job is not on track, whatever its forecast: a reason and a message."""

    reason: str
    message: str


def hindrance(st: JobState) -> Hindrance | None:
    """Return what no pace shows: that a job's pods do not start."""
    return Hindrance(reasons.NOT_STARTED, st.unstarted) if st.unstarted else None


WAITING: Final = 200
"""Jobs without a chunk that one look judges, in turn: of them, only time tells something new."""


@dataclass(slots=True)
class Tracking:
    """Judges all jobs with a promise, or on leftover capacity."""

    state: PoolState
    looked: float = -math.inf
    """Time of the last look at jobs without a change."""
    rest: Iterator[JobState] = field(default_factory=lambda: iter(()))
    """Jobs that the next looks judge."""

    def run(self, now: float) -> None:
        """Judge the jobs with a status to write. Twice a second, judge those that run, and some of the others."""
        for uid in list(self.state.outbox.touched):
            if st := self.state.jobs.get(uid):
                self._track(now, st)
        if abs(now - self.looked) < LOOK:
            return
        self.looked = now
        for uid in self.state.active:
            self._track(now, self.state.jobs[uid])
        some = list(islice(self.rest, WAITING))
        if len(some) < WAITING:
            self.rest = iter(list(self.state.live.values()))
        for st in some:
            if st.job.uid in self.state.live and not st.record.chunks:
                self._track(now, st)

    def _track(self, now: float, st: JobState) -> None:
        """Judge one job, and note its ETA."""
        before = st.record.eta
        if st.state not in {"Promised", "Leftover"} or st.cost is None:
            eta = None
        else:
            st.pace = job_pace(st)
            setting = Setting(self.state.processors.total, self.state.schedule.counts_on_ends, self.state.terms.shares)
            found = forecast(st, setting, now)
            if st.state == "Promised":
                self._judge(now, st, found)
            eta = _eta(st, found)
        if eta == before:
            return
        st.record = st.record._replace(eta=eta)
        if eta is None or before is None:
            self.state.touch(st)
        elif st.written is None or abs(eta - (st.written.eta or 0.0)) > max(REPORT, MOVED * (eta - now)):
            self.state.outbox.progressed.setdefault(st.job.uid)

    def _judge(self, now: float, st: JobState, found: Forecast) -> None:
        """Change the condition OnTrack if enough forecasts in a row contradict it, or if a fact does."""
        deadline, judged, track = st.job.deadline, st.judged, st.record.on_track
        if (fact := hindrance(st)) is not None:
            judged.against = 0
            self._say(st, Verdict("False", *fact))
            return
        on_track, end = track is None or track.status == "True", deadline + tolerance(deadline)
        # earlier forecasts were compared with another deadline, or did not count
        edited = judged.deadline not in {None, deadline} or (track is not None and track.reason == reasons.NOT_STARTED)
        judged.deadline = deadline
        if edited:
            contradicts = (found.likely > end) == on_track
        else:
            contradicts = found.best > end if on_track else found.known and found.likely <= end
        if not contradicts:
            judged.against, judged.at = 0, now
        elif abs(now - judged.at) >= REPORT:
            judged.against, judged.at = judged.against + 1, now
        if contradicts and (edited or now > end or judged.against >= (LATE_AFTER if on_track else BACK_AFTER)):
            on_track, judged.against = not on_track, 0
        if on_track:
            self._say(st, Verdict("True", reasons.ON_TRACK, "the forecast is before the deadline"))
        elif found.likely > end:
            self._say(st, _why_late(st, found.likely - deadline, now))

    def _say(self, st: JobState, verdict: Verdict) -> None:
        """Set the condition if it is another one: messages with newer numbers are not written."""
        track = st.record.on_track
        if track is not None and track.status == verdict.status and verdict.status == "True":
            return
        if track is not None and track[:2] == verdict[:2]:
            return
        st.record = st.record._replace(on_track=verdict)
        self.state.touch(st)
        self.state.outbox.add(
            Emit(st.job.uid, "Normal" if verdict.status == "True" else "Warning", verdict.reason, verdict.message)
        )


def _why_late(st: JobState, seconds: float, now: float) -> Verdict:
    """Return the condition of a job with a forecast so long after its deadline."""
    if any(helpless(st, chunk, now) for chunk in st.record.chunks):
        text = (
            "a chunk needs more CPU than its node has to end as planned, and no processor is idle to help: "
            f"at its pace the job ends {span(seconds)} after the deadline"
        )
        return Verdict("False", reasons.LOOP_SATURATED, text)
    text = f"the forecast is {span(seconds)} after the deadline; status.eta follows it"
    return Verdict("False", reasons.LATE, text)


def _eta(st: JobState, found: Forecast) -> float:
    """Return the ETA: the expected end, kept on the side of the deadline that the condition OnTrack names.

    Where nothing has been observed yet, as after a takeover, the ETA of a late job does not move forward.
    """
    track, before, deadline = st.record.on_track, st.record.eta, st.job.deadline
    if st.record.goes_on:
        return found.likely
    if track is None or track.status == "True":
        return min(found.likely, deadline)
    eta = found.likely if found.known or before is None else max(found.likely, before)
    return max(eta, deadline + BEYOND) if track.reason in {reasons.LATE, reasons.LOOP_SATURATED} else eta
