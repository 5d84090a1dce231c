"""Short plans written out: each is right, and those that belong to a mend fail without it."""

import subprocess
from pathlib import Path

import pytest
from edge.mutants import MUTANTS

ROOT = Path(__file__).parents[3]


def stories(*words):
    """Play stories in a program of its own: virtual time must be there before the product is imported."""
    ran = subprocess.run([ROOT / "hack/edge", "--stories", *words], capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout


@pytest.mark.timeout(600)
def test_all_stories_are_right():
    code, said = stories()
    assert code == 0, said
    assert said.endswith(" stories, 0 failed\n")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_that_a_planted_fault_changes_stands_once(mutant):
    assert (ROOT / mutant.path).read_text().count(mutant.text) == 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("story", "without", "said"),
    [
        (
            "a leader is away, another one finishes its job, and it leads again",
            "a job of an earlier term is remembered",
            "were accounted and are not",
        ),
        (
            "a comparison took long, then kopf's watches end, and a job comes",
            "after a long comparison, the next one is far away",
            "unheard: it has not ended",
        ),
        (
            "a profile goes, kopf does not see it, and a job names it",
            "resync finds no deletions",
            "second: promised, though it cannot run",
        ),
        (
            "a window has begun when another replica leads",
            "windows of an earlier leader are not read",
            "Reservation window is",
        ),
        (
            "a window is left empty by the leader after the one that booked it",
            "a pool that starts does not learn of windows",
            "pods on n1 in the window",
        ),
        (
            "a held pod keeps its limit under the next leader, and loses it with its target rate",
            "a target rate that is gone goes on",
            "and there is no TargetRate",
        ),
        (
            "a deadline is edited, and kopf does not see it",
            "resync finds no edits",
            "later is",
        ),
        (
            "a pod goes while the leader's watches are silent and the history is forgotten",
            "a list tells of no deletions",
            "one: failed by Stalled",
        ),
        (
            "a quota refuses pods while a job is asked for",
            "a job is promised before the API server has tried its pod",
            "refused: it has not ended",
        ),
        (
            "a finished job has to go after the next takeover",
            "a job that was put aside is not read late",
            "done: it was deleted and is still there",
        ),
        (
            "an application is held while a takeover takes long",
            "an agent gives an application its CPU back when an answer is incomplete",
            "solver got all its CPU at",
        ),
        (
            "aligned slices stay where they are under the next leaders, and under other agents",
            "an agent that begins again takes back what it told of phases",
            "moved by",
        ),
        (
            "a worker is slow, and stops early where it is asked to",
            "an agent does not say which end a worker honours",
            "slow: promise not kept",
        ),
        (
            "strangers come for what small pods of an ordinary Job leave",
            "what small pods leave of their processors is not kept",
            "small: it has not ended",
        ),
        (
            "the store is brought back under a leader that lives on",
            "a store that was set back is not noticed",
            "one: it has not ended",
        ),
        (
            "a leader has the epoch of another one that agents have heard",
            "a leader does not go on above the epochs of agents",
            "has had no answer since",
        ),
        (
            "a job is asked for while its pool goes, and the pool comes again",
            "a signal touches no job",
            "during is",
        ),
    ],
)
def test_a_story_fails_without_its_mend(story, without, said, tmp_path):
    (mutant,) = [one for one in MUTANTS if one.name == without]
    code, found = stories(story, "--source", mutant.plant(tmp_path))
    assert code == 1
    assert said in found
