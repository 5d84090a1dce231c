"""``why tr/NAME``: a sentence for each condition, and the numbers in force."""

import pytest

from punctual.notation.duration import parse_time
from punctual.view.rates import rate_of, why_rate

CREATED = "2030-01-01T00:00:00Z"
NOW = parse_time(CREATED) + 60.0


def body(*conditions, generation=1, coscheduling=None, rate="40%", **status):
    """Return a TargetRate. A condition: (type, status, reason, message)."""
    said = [dict(zip(("type", "status", "reason", "message"), one, strict=True)) for one in conditions]
    spec = {"pool": "main", "rate": rate} | ({"coscheduling": coscheduling} if coscheduling else {})
    meta = {"uid": "u", "namespace": "default", "name": "solver", "generation": generation}
    status = status | {"observedGeneration": 1, "conditions": said} if conditions else {}
    return {"metadata": {**meta, "creationTimestamp": CREATED}, "spec": spec, "status": status}


FITS = "Admitted", "True", "Feasible", "its pods request what the rate takes"
GOOD = "OnTarget", "True", "OnTarget", "39.6% of its rate alone"
BALANCED = "OnTarget", "True", "Balanced", "its pods have 80% of their CPU"
NUMBERS = {"target": "40%", "rate": "39.6%", "error": "-0.4%", "utilization": "42%", "period": 0.1, "pods": 2}
HELD = "2 pods in pool main shall run at 40% of the rate alone: each gets 42% of its CPU, in periods of 100ms."
PART = (
    "2 pods in pool main shall have the part of their CPU that is right for the load of their nodes' own work, 0.9 "
    "tasks per CPU: each gets 80% of its CPU, in periods of 100ms."
)
TOLD = "It is on target (OnTarget): 39.6% of its rate alone."
GRID = "They begin 25ms after each begin of a period of the grid, which all nodes share."

CASES = {
    "without a status": (
        body(),
        ("The operator has not looked at it yet, 1m after its creation: see whether the operator runs.",),
    ),
    "refused": (
        body(("Admitted", "False", "SlicesDoNotFit", "node n1 has no place"), pods=2),
        ("It is refused, and its pods are not held (SlicesDoNotFit): node n1 has no place.",),
    ),
    "held": (body(FITS, GOOD, **NUMBERS), (HELD, TOLD)),
    "balanced": (
        body(FITS, BALANCED, rate="Balanced", target="80%", utilization="80%", period=0.1, pods=2, load=0.9),
        (
            PART,
            "It is on target (Balanced): its pods have 80% of their CPU.",
        ),
    ),
    "with an edit that is refused": (
        body(("Admitted", "True", "EditRefused", "spec.rate: 40% stays in force"), GOOD, **NUMBERS),
        ("The last edit is not in force (EditRefused): spec.rate: 40% stays in force.", HELD, TOLD),
    ),
    "with an edit that is not read": (
        body(FITS, GOOD, generation=2, **NUMBERS),
        ("The operator has not looked at the last edit yet.", HELD, TOLD),
    ),
    "off target": (
        body(FITS, ("OnTarget", "False", "Unreachable", "35%"), **NUMBERS),
        (HELD, "It is not on target (Unreachable): 35%."),
    ),
    "short of memory": (
        body(FITS, ("OnTarget", "False", "MemoryShort", "pod default/p pages: raise its memory limit"), **NUMBERS),
        (
            "2 pods in pool main shall run at 40% of the rate alone.",
            "It is not on target (MemoryShort): pod default/p pages: raise its memory limit.",
        ),
    ),
    "without progress": (
        body(FITS, ("OnTarget", "Unknown", "NoProgress", "no file"), **NUMBERS),
        (HELD, "Whether it is on target is not known (NoProgress): no file."),
    ),
    "aligned": (
        body(FITS, GOOD, ("Aligned", "True", "Aligned", "0.3 ms"), coscheduling="Aligned", offset="25ms", **NUMBERS),
        (HELD, TOLD, "The slices of its pods begin at the same moments (Aligned): 0.3 ms.", GRID),
    ),
    "off the grid": (
        body(FITS, GOOD, ("Aligned", "False", "PhaseOff", "3 ms"), coscheduling="Aligned", offset="25ms", **NUMBERS),
        (HELD, TOLD, "The slices of its pods do not begin at the same moments (PhaseOff): 3 ms.", GRID),
    ),
    "aligned for nothing": (
        body(FITS, GOOD, ("Aligned", "False", "SlicesNotFilled", "12%"), coscheduling="Aligned", **NUMBERS),
        (HELD, TOLD, "The slices of its pods are aligned, but not used up (SlicesNotFilled): 12%."),
    ),
    "being steered": (
        body(FITS, GOOD, ("Aligned", "Unknown", "Steering", "wait"), coscheduling="Aligned", **NUMBERS),
        (HELD, TOLD, "Whether the slices of its pods begin at the same moments is not known (Steering): wait."),
    ),
    "measured before it is aligned": (
        body(FITS, ("OnTarget", "Unknown", "Measuring", "10 s"), coscheduling="Aligned", **NUMBERS),
        (
            HELD,
            "Whether it is on target is not known (Measuring): 10 s.",
            "Its slices are aligned when its rate alone is known.",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rate", "sentences"), CASES.values(), ids=CASES)
def test_each_condition_is_a_sentence(rate, sentences):
    assert why_rate(rate_of(rate), NOW) == sentences


@pytest.mark.parametrize(
    ("conditions", "state", "aligned"),
    [
        ((), "Waiting", ""),
        ((FITS,), "Feasible", ""),
        ((FITS, GOOD), "OnTarget", ""),
        ((("Admitted", "False", "PodShared", ""),), "PodShared", ""),
        ((FITS, GOOD, ("Aligned", "True", "Aligned", "")), "OnTarget", "yes"),
        ((FITS, GOOD, ("Aligned", "False", "ClockUncertain", "")), "OnTarget", "ClockUncertain"),
    ],
)
def test_its_state_is_the_reason_that_explains_it(conditions, state, aligned):
    rate = rate_of(body(*conditions))
    assert (rate.state, rate.aligned) == (state, aligned)
