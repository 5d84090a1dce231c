"""The validator of simulated runs finds what is planted in their results."""

import sys
from collections import defaultdict
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "hack/validate"
EXACT, WRONG_COSTS = 12, 96
"""Seeds of runs: with jobs that are refused and offered a deadline; with costs that differ from their estimates."""


@pytest.fixture(scope="module")
def validate():
    loader = SourceFileLoader("validate", str(PROGRAM))
    spec = spec_from_loader("validate", loader)
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "validate", module)
        loader.exec_module(module)
        yield module


def offered(document, factor):
    for decision in document["decisions"]:
        if decision.get("earliest_deadline"):
            decision["earliest_deadline"] *= factor


def misreported(document):
    document["metrics"]["utilization"] *= 1.001


def late(document):
    document["jobs"][0]["met"] = False


def halved(document):
    document["chunks"][0]["load"] /= 2.0


def thrown_away(document):
    document["chunks"][0]["load"] = 0.0


PLANTED = {
    "offers": (EXACT, lambda document: offered(document, 0.9)),
    "nearer": (EXACT, lambda document: offered(document, 1.2)),
    "utilization": (EXACT, misreported),
    "promises": (EXACT, late),
    "execution": (EXACT, halved),
    "waste": (EXACT, thrown_away),
    "lost": (WRONG_COSTS, thrown_away),
}


@pytest.mark.parametrize("check", PLANTED)
def test_a_planted_fault_is_found(validate, monkeypatch, check):
    seed, plant = PLANTED[check]
    run, planted = validate.draw(seed), []
    true = validate.Drawn.document

    def document(self, *, offers):
        made = true(self, offers=offers)
        if not planted:  # the run itself; later ones ask again
            plant(made)
            planted.append(self)
        return made

    assert not list(validate.wrong(run, defaultdict(lambda: [0.0, 0.0])))
    monkeypatch.setattr(validate.Drawn, "document", document)
    assert check in dict(validate.wrong(run, defaultdict(lambda: [0.0, 0.0])))


def test_a_part_of_waste_above_the_limit_fails_the_validation(validate, monkeypatch, capsys):
    assert validate.main(["--seed", str(WRONG_COSTS)]) == 0
    monkeypatch.setattr(validate, "waste", lambda *_: (100.0, {"cut": 5.1}))
    assert validate.main(["--seed", str(WRONG_COSTS)]) == 1
    assert "5.10%" in capsys.readouterr().out
