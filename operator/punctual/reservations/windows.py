"""The windows of one reservation: which its Pool is asked about, and how each stands.

Each window is a separate request to the Pool, made when the window comes within the pool's horizon for reservations.
Windows become active, end and are requested by the clock alone. Jobs may count on a window when its answer is recorded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, Literal, NamedTuple

from punctual import reasons
from punctual.errors import UserError
from punctual.notation.duration import format_duration, format_time
from punctual.reservations.recurrence import DAY, AskedWindows, Span, windows
from punctual.scheduling.model.events import ReservationApplied, Share
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.model.wording import some
from punctual.verdict import Verdict

WindowState = Literal["Booked", "Active", "Completed", "Refused"]
HELD: Final = frozenset({"Booked", "Active"})
"""States of a window that has processors reserved, now or later."""
LOOK: Final = 3600.0
"""Maximum seconds between two evaluations of a recurrence."""

Refusal = tuple[str, str]
"""(reason, message)"""


@dataclass(frozen=True, slots=True)
class PoolTerms:
    """What a pool grants to a reservation."""

    horizon: int
    """Days ahead within which a window must end."""
    nodes: frozenset[str] | None
    """The pool's nodes that the reservation selects. None: any node."""


class Note(NamedTuple):
    """What has happened to a window, for an event."""

    reason: str
    message: str
    good: bool = True


@dataclass(slots=True)
class ReservationWindow:
    """One window of a reservation, and how it stands."""

    start: float
    end: float
    state: WindowState | None = None
    """None: it has no answer yet."""
    reason: str = ""
    message: str = ""
    nodes: tuple[Share, ...] = ()
    offer: float | None = None
    """Of a refused one the start that would do."""

    @property
    def held(self) -> bool:
        """Whether its processors are reserved, now or later."""
        return self.state in HELD

    @property
    def processors(self) -> int:
        """How many processors it holds."""
        return sum(share.processors for share in self.nodes)


@dataclass(slots=True)
class Windows:
    """The windows of one reservation (its uid, pool and time of creation)."""

    uid: str
    pool: str
    created: float
    namespace: str = ""
    by_name: dict[str, ReservationWindow] = field(default_factory=dict)
    """By what the Pool calls each."""
    refusal: Refusal | None = None
    """Why no Pool is asked."""
    finished: float | None = None
    """When the last window was over. None: it is not, or more will come."""
    recorded: bool = False
    """A window that it holds is in its written status: what counts on it may be promised."""
    comes: float = inf
    """When its next window that is not asked about comes within the pool's horizon."""
    look: float = 0.0
    """When it has to be looked at by the clock alone."""

    @property
    def held(self) -> bool:
        """Whether any window is."""
        return any(window.held for window in self.by_name.values())

    @property
    def answered(self) -> list[ReservationWindow]:
        """The windows with an answer, by start."""
        return sorted((w for w in self.by_name.values() if w.state is not None), key=lambda w: w.start)

    def name(self, start: float) -> str:
        """Return what the Pool calls the window that begins then."""
        return f"{self.uid}/{start:.6f}"

    # requests

    def request(
        self, asked: AskedWindows | None, pool: PoolTerms | Refusal, now: float
    ) -> list[ReservationApplied] | None:
        """Return the requests for windows that have come within the horizon. None: the reservation is refused now.

        ``pool``: what its pool grants, or why it cannot be asked. Windows that are held stay, whatever is refused.
        """
        self.comes = inf
        try:
            new = self._new(asked, pool, now)
        except UserError as error:
            if error.reason == reasons.POOL_NOT_FOUND:
                self.by_name.clear()  # a pool that is being deleted keeps no windows
            self._note_look(asked, now)
            if self.held:
                return []
            self.refusal = error.reason, error.message
            return None
        self.refusal = None
        self._note_look(asked, now)
        return new

    def _new(self, asked: AskedWindows | None, pool: PoolTerms | Refusal, now: float) -> list[ReservationApplied]:
        """Add the windows that have come within the horizon. Raises UserError if there are none or none is allowed."""
        if not isinstance(pool, PoolTerms):
            raise UserError(*pool)
        assert asked is not None
        ahead, behind = windows(asked, now, pool.horizon * DAY)
        if behind is not None and behind.end - behind.start <= pool.horizon * DAY:
            self.comes = behind.end - pool.horizon * DAY
        if behind is not None and not ahead and not self.by_name:
            raise UserError(reasons.TOO_FAR_AHEAD, _too_far(self.pool, behind, now=now, days=pool.horizon))
        if not ahead and not self.by_name:
            text = f"spec.start: {format_time(asked.start)} has passed, now it is {format_time(round(now))}"
            if asked.every is not None:
                text = f"spec.recurrence.until: no window begins between now, {format_time(round(now))}, and then"
            raise UserError(reasons.INVALID_SPEC, text)
        if ahead and pool.nodes == frozenset():
            text = f"spec.nodes: selects no node of Pool {self.pool}"
            raise UserError(reasons.INFEASIBLE_RESERVATION, text)
        added = {self.name(start): ReservationWindow(start, end) for start, end in ahead}
        added = {name: window for name, window in added.items() if name not in self.by_name}
        self.by_name |= added
        return [ReservationApplied(self._reservation(name, w, asked, pool.nodes)) for name, w in added.items()]

    def promised(
        self, asked: AskedWindows | None, nodes: frozenset[str] | None, now: float
    ) -> Iterator[ReservationApplied]:
        """Yield what a Pool that starts must know of windows that are held. ``nodes``: as in `PoolTerms`."""
        for name, window in self.by_name.items():
            if window.held and window.end > now:
                yield ReservationApplied(self._reservation(name, window, asked, nodes), window.nodes)

    def _reservation(
        self, name: str, window: ReservationWindow, asked: AskedWindows | None, nodes: frozenset[str] | None
    ) -> Reservation:
        # a promise stands even if the spec can no longer be read
        wanted = asked.processors or 0 if asked else window.processors
        if nodes is not None and not wanted and window.nodes:  # the recorded nodes count, whatever their labels are now
            nodes = frozenset(share.node for share in window.nodes)
        return Reservation(
            uid=name,
            namespace=self.namespace,
            arrival=self.created,
            start=window.start,
            end=window.end,
            processors=max(wanted, 1) if nodes is None else wanted,
            nodes=nodes,
            group=self.uid,
            io_ratio=asked.transfer_share if asked else 0.0,
        )

    def release(self) -> list[str]:
        """Give all windows back: the reservation is gone. Returns the names of those that the Pool knows."""
        names = [name for name, window in self.by_name.items() if window.state is None or window.held]
        self.by_name.clear()
        self.recorded = False
        return names

    # answers

    def answer(self, name: str, verdict: Verdict, places: Sequence[Place]) -> Note | None:
        """Take in the Pool's answer for a window. None: there is no such window."""
        if (window := self.by_name.get(name)) is None:
            return None
        status, window.reason, window.message = verdict
        names = [place.node for place in places]
        window.nodes = tuple(Share(name, names.count(name)) for name in sorted(set(names)))
        if status == "False":
            window.state = "Refused"
        elif not window.held:
            window.state = "Booked"
        return Note(window.reason, window.message, window.reason == reasons.FEASIBLE)

    def offer(self, name: str, start: float | None, now: float, horizon: int) -> bool:
        """Take in when a refused window would be accepted (None: never). Returns whether there is such a window."""
        if (window := self.by_name.get(name)) is None:
            return False
        window.offer = start
        length = window.end - window.start
        nearest = "no window as long would be reserved at any later time"
        if start is not None and start + length > now + horizon * DAY:
            window.offer = None
            nearest = f"no window as long would be reserved within the horizon of Pool {self.pool}"
        elif start is not None:
            nearest = f"the nearest window is {format_time(start)} to {format_time(start + length)}"
        window.message = f"{window.message}; {nearest}"
        return True

    # the clock

    def advance(self, now: float) -> list[Note]:
        """Let windows begin and end. `clean` follows, after the next ones were requested."""
        notes = []
        for window in self.by_name.values():
            if window.held and window.end <= now:
                window.state = "Completed"
                notes.append(Note(reasons.COMPLETED, "the window is over"))
            elif window.state == "Booked" and window.start <= now:
                window.state = "Active"
                text = f"{_processors(window)} kept empty until {format_time(window.end)}"
                notes.append(Note(reasons.ACTIVE, text))
        return notes

    def clean(self, asked: AskedWindows | None, now: float) -> None:
        """Remove windows that are over, all but the last, and note whether the reservation is finished."""
        over = [name for name, w in self.by_name.items() if w.end <= now and w.state is not None]
        for name in over[:-1] if len(over) == len(self.by_name) else over:
            del self.by_name[name]
        more = self.comes < inf or self.refusal is not None
        if not more and all(w.state == "Completed" for w in self.by_name.values()):
            self.finished = max(w.end for w in self.by_name.values())
        self._note_look(asked, now)

    def _note_look(self, asked: AskedWindows | None, now: float) -> None:
        # a window that is due already counts too: it may have begun while no replica led
        times = [w.start if w.state == "Booked" else w.end for w in self.by_name.values() if w.held]
        if self.by_name and asked is not None and asked.every is not None:
            times.append(now + LOOK)
        self.look = min([*times, self.comes])

    # what follows for its status, and for jobs

    def verdicts(self) -> dict[str, Verdict | None]:
        """Return the contents of its conditions."""
        if self.refusal:
            return {"Admitted": Verdict("False", *self.refusal)}
        if not (answered := self.answered):
            return {}
        refused = [w for w in answered if w.state == "Refused"]
        short = [w for w in answered if w.held and w.reason != reasons.FEASIBLE]
        active = next((w for w in answered if w.state == "Active"), None)
        admitted = Verdict("True", answered[0].reason, answered[0].message)
        if len(answered) > 1:
            ahead = f"{len(answered)} windows until {format_time(answered[-1].end)}: {_processors(answered[0])} each"
            admitted = Verdict("True", reasons.FEASIBLE, ahead)
        if refused:
            first = refused[0]
            which = f"{len(refused)} of {len(answered)} windows, that of {format_time(first.start)}: "
            admitted = Verdict("False", first.reason, (which if len(answered) > 1 else "") + first.message)
        elif short:
            admitted = Verdict("True", short[0].reason, f"window of {format_time(short[0].start)}: {short[0].message}")
        until = f"{_processors(active)} until {format_time(active.end)}" if active else "no window is active"
        return {
            "Admitted": admitted,
            "Active": Verdict("True", reasons.ACTIVE, until) if active else Verdict("False", reasons.NOT_ACTIVE, until),
            "Completed": Verdict("True", reasons.COMPLETED, "the last window is over") if self.finished else None,
        }


def inside(found: Windows | None, name: str, *, namespace: str, pool: str) -> str | Refusal | None:
    """Return the window for a job of this pool that names a reservation, or a refusal.

    None: its answer is not known, or not written yet.
    """
    if found is None:
        text = f"there is no Reservation {name} in namespace {namespace}: create it, and this job is evaluated"
        return reasons.RESERVATION_NOT_FOUND, text
    if found.pool != pool:
        text = f"Reservation {name} is of Pool {found.pool}, spec.pool of this job is {pool}"
        return reasons.RESERVATION_REFUSED, text
    if found.held:
        return found.uid if found.recorded else None
    windows = found.by_name.values()
    if found.comes < inf and windows and all(w.state == "Completed" for w in windows):
        text = f"Reservation {name}: no window is reserved, the next is evaluated at {format_time(found.comes)}"
        return reasons.RESERVATION_REFUSED, text
    why = "it is over" if found.finished is not None else found.refusal[1] if found.refusal else ""
    if windows and all(w.state == "Refused" for w in windows):
        why = next(iter(windows)).message
    return (reasons.RESERVATION_REFUSED, f"Reservation {name}: {why}") if why else None


def _processors(window: ReservationWindow) -> str:
    return some(window.processors, "processor")


def _too_far(pool: str, window: Span, *, now: float, days: int) -> str:
    """Return the refusal of a window that ends after the horizon of ``days`` days, with the correct values."""
    allowed = f"Pool {pool} reserves at most {some(days, 'day')} ahead (its spec.reservations.horizon)"
    if window.end - window.start > days * DAY:
        return (
            f"spec.end: the window lasts {format_duration(window.end - window.start)}, and {allowed}: make it shorter"
        )
    return (
        f"spec.end: the window ends at {format_time(window.end)}, and {allowed}: choose one that ends by "
        f"{format_time(int(now + days * DAY))}, or wait: it is evaluated at {format_time(window.end - days * DAY)}"
    )
