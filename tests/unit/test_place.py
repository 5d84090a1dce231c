"""Demo and tests run on a cluster of our own or on the one that is named, and never on another by mistake."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from punctual.errors import PunctualError

sys.path.insert(0, str(Path(__file__).parents[2] / "hack"))

from demo_lib import place

HACK = Path(__file__).parents[2] / "hack"


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"PUNCTUAL_CLUSTER": "kidn"}, "PUNCTUAL_CLUSTER=kidn: kind (default) or kubeconfig"),
        ({"PUNCTUAL_CLUSTER": "kubeconfig"}, "PUNCTUAL_IMAGE is not set"),
    ],
)
def test_a_place_that_is_none_is_said_before_any_test_begins(chosen, says, tmp_path, monkeypatch):
    (tmp_path / "hack").mkdir()
    command = shutil.copy(HACK / "test", tmp_path / "hack")  # without a .venv: no test could begin
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PUNCTUAL_")}
    ran = subprocess.run([command], env=clean | chosen, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert says in ran.stderr
    assert "1/5" not in ran.stderr
    monkeypatch.delenv("PUNCTUAL_IMAGE", raising=False)
    monkeypatch.setenv("PUNCTUAL_CLUSTER", chosen["PUNCTUAL_CLUSTER"])
    with pytest.raises(PunctualError, match=re.escape(says)):
        place.own_cluster() or place.given_image()


def test_the_place_is_kind_unless_told(monkeypatch):
    monkeypatch.delenv("PUNCTUAL_CLUSTER", raising=False)
    assert place.own_cluster()
    monkeypatch.setenv("PUNCTUAL_CLUSTER", "kubeconfig")
    monkeypatch.setenv("PUNCTUAL_IMAGE", "registry.example.com/punctual:1")
    assert not place.own_cluster()
    assert place.given_image() == "registry.example.com/punctual:1"
