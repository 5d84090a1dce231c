from punctual.kube.api.conditions import conditions, transition_times
from punctual.verdict import Verdict

YES, NO = Verdict("True", "Feasible", "all fits"), Verdict("False", "InfeasibleCapacity", "9 are free")


def at(now, verdict, before=()):
    return conditions({"Admitted": verdict}, transition_times(before), now=now, generation=3)


def test_a_condition_says_all_that_kubernetes_asks_for():
    assert at(5.0, YES) == [
        {
            "type": "Admitted",
            "status": "True",
            "reason": "Feasible",
            "message": "all fits",
            "lastTransitionTime": "1970-01-01T00:00:05Z",
            "observedGeneration": 3,
        }
    ]


def test_what_is_not_said_is_no_condition():
    assert at(5.0, None) == []


def test_the_time_moves_with_the_status():
    assert at(9.0, NO, before=at(5.0, YES))[0]["lastTransitionTime"] == "1970-01-01T00:00:09Z"


def test_another_reason_or_message_for_the_same_answer_is_no_transition():
    (later,) = at(9.0, Verdict("True", "DryRun", "would fit"), before=at(5.0, YES))
    assert later["lastTransitionTime"] == "1970-01-01T00:00:05Z"
    assert (later["reason"], later["message"]) == ("DryRun", "would fit")


def test_a_message_stays_within_what_the_schema_takes():
    (one,) = at(5.0, Verdict("False", "PodRefused", "x" * 50_000))
    assert len(one["message"]) == 32768
