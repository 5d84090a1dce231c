"""How long reservations take, and placing jobs around them: prints JSON, the best of several rounds.

Run: .venv/bin/python tests/bench/reservations.py
"""

import json
import platform
import timeit

import numpy as np

from punctual.scheduling.admission.reservation_test import (
    AcceptedReservation,
    BookedReservation,
    BookedReservations,
    Refused,
    admit,
    next_start,
)
from punctual.scheduling.model.discipline import Discipline, Order
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.place import place
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Placement, Timeline
from punctual.theory.cost import Cost

BOOKINGS = 10_000
PROCESSORS = 512
LENGTH = 600.0


def microseconds(call, rounds=50):
    """Return the time of one call: of some rounds the fastest was not disturbed."""
    call()
    number = max(1, round(0.01 / timeit.timeit(call, number=1)))
    return round(min(timeit.repeat(call, number=number, repeat=rounds)) / number * 1e6, 1)


def asked(uid, start, processors):
    """Return a reservation."""
    return Reservation(uid=uid, arrival=0.0, start=start, end=start + LENGTH, processors=processors, io_ratio=0.05)


def booked(network):
    """Return reservations of one to four processors in turn, one begun every two minutes, and an idle pool."""
    rng = np.random.default_rng(3)
    ahead, places = BookedReservations(), tuple(Place(f"n{i}", 0) for i in range(PROCESSORS))
    for n in range(BOOKINGS):
        first, count = 4 * n % PROCESSORS, int(rng.integers(1, 5))
        ahead.book(BookedReservation(asked(f"r{n}", 120.0 * n, count), places[first : first + count]))
    discipline = Discipline(network=network)
    return ahead, empty_plan(ahead, places, discipline), 60.0 * BOOKINGS


def empty_plan(ahead, places, discipline):
    """Return a plan without jobs around what is booked."""
    timeline = Timeline(np.zeros(len(places)), discipline, blackouts=ahead.on(places, discipline))
    return Plan.of(places, timeline, [])[0]


def measure():
    """Return the benchmark's numbers by name."""
    numbers = {}
    for network in ("OnePort", "Concurrent"):
        name = network.lower()
        ahead, plan, middle = booked(network)
        fits, never = asked("fits", middle + 40.0, 4), asked("never", middle + 40.0, PROCESSORS)
        assert isinstance(admit(fits, ahead, plan, 0.0), AcceptedReservation)
        assert isinstance(admit(never, ahead, plan, 0.0), Refused)
        numbers[f"test_{name}"] = microseconds(lambda a=ahead, p=plan, r=fits: admit(r, a, p, 0.0))
        numbers[f"refusal_{name}"] = microseconds(lambda a=ahead, p=plan, r=never: admit(r, a, p, 0.0))
        numbers[f"next_start_{name}"] = microseconds(
            lambda a=ahead, p=plan, r=never: next_start(r, a, p, 0.0, not_before=r.start)
        )
    ready = np.random.default_rng(1).uniform(0.0, 100.0, PROCESSORS)
    few, places = BookedReservations(), plan.places
    for n in range(40):
        few.book(BookedReservation(asked(f"r{n}", 120.0 + 10.0 * n, 4), places[4 * n : 4 * n + 4]))
    cost = Cost(chi=40.0, theta_cp=1.0)
    demand = Demand(order=Order(900.0, 0.0, "j"), ranges=Ranges.of((0, 3000)), cost=cost, due=900.0)
    for network in ("OnePort", "Concurrent"):
        discipline = Discipline(network=network)
        free, blackouts = Timeline(ready, discipline), Timeline(ready, discipline, blackouts=few.on(places, discipline))
        assert isinstance(place(demand, blackouts), Placement)
        numbers[f"place_{network.lower()}"] = microseconds(lambda g=free: place(demand, g))
        numbers[f"place_around_40_{network.lower()}"] = microseconds(lambda g=blackouts: place(demand, g))
    return numbers


if __name__ == "__main__":
    report = {
        "reservations": measure(),
        "unit": "us",
        "bookings": BOOKINGS,
        "processors": PROCESSORS,
        "machine": {"python": platform.python_version(), "numpy": np.__version__, "cpu": platform.machine()},
    }
    print(json.dumps(report, indent=2))  # noqa: T201  what it is for
