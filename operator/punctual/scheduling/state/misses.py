"""Outcomes of statistical promises, for the controller of the utilization bound."""

from collections.abc import Iterable
from dataclasses import dataclass

from punctual.control.miss_ratio import BoundSample, MissCount, MissRatio
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.state.job_state import JobState


@dataclass(slots=True)
class Misses:
    """The controller of the utilization bound, if the pool has one."""

    controller: MissRatio | None = None
    found: MissCount | None = None
    """The counts of an earlier leader, until the controller continues from them."""

    def follow(self, now: float, spec: PoolSpec, jobs: Iterable[JobState]) -> bool:
        """Use the controller that the spec asks for; return whether it is another one than before."""
        if spec.miss_set_point is None:
            self.controller = self.found = None
            return False
        old = self.controller
        if old is not None and (old.set_point, old.period) == (spec.miss_set_point, spec.sample_period):
            return False
        found = old.count if old else self.found
        new = MissRatio.going_on(now, found, set_point=spec.miss_set_point, period=spec.sample_period)
        self.controller, self.found = new, None
        for st in jobs:
            if st.is_statistical and st.record.promise and not st.record.ended:
                new.accept(st.job.uid, st.record.promise.deadline)
        return True

    @property
    def bound(self) -> float | None:
        """The bound that the controller asks for."""
        return self.controller.bound if self.controller else None

    @property
    def count(self) -> MissCount | None:
        """The counts to be recorded."""
        return self.controller.count if self.controller else self.found

    @property
    def last(self) -> BoundSample | None:
        """The last period; None: none has ended."""
        return self.controller.last if self.controller else None

    def accept(self, uid: str, deadline: float) -> None:
        """Count on a job that was admitted, or has another deadline."""
        if self.controller:
            self.controller.accept(uid, deadline)

    def ended(self, now: float, uid: str) -> None:
        """Count a job that has ended."""
        if self.controller:
            self.controller.ended(now, uid)

    def leave(self, uid: str) -> None:
        """Count no more on a job: it was withdrawn, or failed by itself, which no bound would have prevented."""
        if self.controller:
            self.controller.leave(uid)

    def turn_away(self) -> None:
        """Note that the bound has refused a job in this period."""
        if self.controller:
            self.controller.turned_away = True
