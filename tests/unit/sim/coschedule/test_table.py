"""Table 4.1 of the thesis: which cells it has, and how changes become letters."""

import pytest

from punctual.sim.coschedule import table
from punctual.sim.coschedule.scenario import Stations


@pytest.mark.parametrize(
    ("change", "letter"),
    [(0.0, "C"), (0.015, "C"), (-0.015, "C"), (0.016, "SI"), (-0.05, "SD"), (0.05, "SI"), (0.051, "I"), (-0.2, "D")],
)
def test_a_change_is_a_letter(change, letter):
    assert table.letter(change) == letter


def test_all_policies_have_the_grid_and_those_that_overtake_other_mco_too():
    for policy in table.POLICIES:
        assert len(table.cells(policy)) == 24 + 12 * (policy in {"PRE", "DYN"})


def made(policy, cell):
    """SystemCoDe that changes by known amounts."""
    code = 0.5 - 0.1 * (cell.mrql == 5)
    if policy == "LIN":
        return code
    return code + 0.03 * (cell.nstations == 16) - 0.2 * (cell.pdt - 0.2) + 0.02 * cell.mco


def test_letters_are_of_the_mean_change_of_the_lead_over_lin():
    codes = {policy: {cell: made(policy, cell) for cell in table.cells(policy)} for policy in table.POLICIES}
    letters = table.letters(codes)
    assert len(letters) == 26
    found = {(each.parameter, each.policy): each for each in letters}
    assert found["MRQL", "LIN"].change == pytest.approx(-0.1)
    assert (found["MRQL", "LIN"].letter, found["MRQL", "LIN"].equal) == ("D", True)
    assert found["MRQL", "PRE"].letter == "C", "as LIN's"
    assert (found["NSTATIONS", "EXP"].letter, found["NSTATIONS", "EXP"].published) == ("SI", "C")
    assert found["pdt", "HPDT"].change == pytest.approx(-0.12)
    assert found["MCO", "DYN"].change == pytest.approx(0.08)
    assert ("MCO", "LIN") not in found


def test_a_cell_is_simulated_with_its_parameters_and_with_the_tasks_of_the_other_policies(monkeypatch):
    asked = []

    class Found:
        system_code = 0.5

    def simulate(scenario, seed):
        asked.append((scenario, seed))
        return Found

    monkeypatch.setattr(table, "simulate", simulate)
    report = table.table(Stations(tasks=7, quantum=3.0), 2)
    assert len(asked) == 6 * 24 + 2 * 12
    assert {(scenario.tasks, scenario.quantum) for scenario, _ in asked} == {(7, 3.0)}
    cell = {(s.policy, s.mco): seed for s, seed in asked if (s.stations, s.mrql, s.maxm, s.pdt) == (4, 5.0, 3, 0.8)}
    assert set(cell) == {(policy, 5) for policy in table.POLICIES} | {(p, m) for p in ("PRE", "DYN") for m in (3, 7)}
    assert len(set(cell.values())) == 1
    assert len({seed for _, seed in asked}) == 24
    assert min(seed for _, seed in asked) >= 48, "other seeds, other tasks"
    said = report.document()
    assert (len(said["table"]), said["letters"]) == (26, 26)
    assert said["equal"] == sum(row["letter"] == row["published"] for row in said["table"])
    assert list(said["table"][0]) == ["parameter", "policy", "change", "letter", "published"]
