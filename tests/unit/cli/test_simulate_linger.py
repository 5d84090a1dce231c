"""``punctual simulate linger`` as programs and people use it."""

import json

import pytest
from command_line import punctual

SMALL = ("--nodes", "4", "--guests", "6", "--guest-work", "20", "--horizon", "200")


def linger(*words):
    return punctual("simulate", "linger", *SMALL, *words)


def test_the_object_has_what_the_contract_says():
    found = json.loads(linger("--json").stdout)
    assert list(found)[:11] == [
        "policy",
        "host_slowdown",
        "host_delay_ratio",
        "guest_throughput",
        "guest_mean_completion",
        "guest_p95_completion",
        "migrations",
        "evictions",
        "lost_seconds",
        "idle_share",
        "host_use",
    ]
    assert found["policy"] == "LingerLonger"
    assert 0.0 < found["guest_throughput"] < 4.0


def test_one_seed_gives_the_same_bytes_and_another_one_others():
    first, again, other = (linger("--json", "--seed", seed).stdout for seed in ("7", "7", "8"))
    assert first == again
    assert first != other


def test_people_see_what_guests_got_and_what_it_cost():
    shown = linger("--policy", "PauseAndMigrate").stdout
    assert "PauseAndMigrate: guests got the work of" in shown
    assert "guests delayed them by" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("words", "flaw"),
    [
        (("--hosts", "constant:2"), "--hosts: constant:2 must be a use from 0 to 1"),
        (("--hosts", "constant:nan"), "--hosts: constant:nan must be"),
        (("--hosts", "no-such-file"), "--hosts: no-such-file cannot be read"),
        (("--policy", "Stay"), "LingerForever"),
        (("--nodes", "0"), "--nodes"),
        (("--nodes", "10000", "--horizon", "1e7"), "10000 s on 10000 nodes, or 10 nodes for 1e+07 s"),
    ],
)
def test_bad_options_are_named(words, flaw):
    result = linger(*words)
    assert result.exit_code == 2
    assert flaw in " ".join(result.stderr.split())


def test_a_trace_can_be_read_from_a_file(tmp_path):
    file = tmp_path / "hosts.txt"
    file.write_text("n1 0 0.5\nn2 0 0.0\n")
    assert json.loads(linger("--json", "--hosts", str(file)).stdout)["host_use"] == pytest.approx(0.125, abs=0.02)


def test_a_trace_of_more_nodes_is_refused(tmp_path):
    """Nodes beyond `--nodes` would be left out silently; with fewer, the others are idle."""
    file = tmp_path / "hosts.txt"
    file.write_text("".join(f"n{node} 0 1\n" for node in range(5)))
    refused = linger("--hosts", str(file))
    assert refused.exit_code == 2
    assert "--nodes: the trace of --hosts has 5 nodes, and --nodes is 4" in " ".join(refused.stderr.split())
    found = json.loads(linger("--json", "--hosts", str(file), "--nodes", "10").stdout)
    assert found["idle_share"] == 0.5
