"""The agent's tests on a real v2 hierarchy, in a virtual machine where this machine has v1."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TOP = HERE.parent.parent
SCRIPTS = [HERE / f"test_{name}.py" for name in ("actuator", "phases")]
PACKAGES = ("node-agent/punctual_agent", "operator/punctual", "tests/support/real_node")

pytestmark = [
    pytest.mark.v2,
    pytest.mark.skipif(os.geteuid() != 0, reason="not root: cannot make a virtual machine's file system"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the virtual machine is x86_64"),
    pytest.mark.skipif(
        "cpu" in Path("/sys/fs/cgroup/cgroup.controllers").read_text().split()
        if Path("/sys/fs/cgroup/cgroup.controllers").exists()
        else False,
        reason="this machine has cgroup v2: they ran on it",
    ),
]


@pytest.mark.timeout(900)  # the first run on a machine makes the file system; later ones take 30 s
def test_every_one_of_them_passes_on_a_real_v2_hierarchy():
    names = re.findall(r"^    def (test_\w+)", "".join(file.read_text() for file in SCRIPTS), re.MULTILINE)
    assert len(names) > 10
    done = subprocess.run(
        [sys.executable, TOP / "hack/vm", *SCRIPTS, *(f"--package={TOP / package}" for package in PACKAGES)],
        stdout=subprocess.PIPE,  # progress of the first run goes where pytest's own output goes
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for name in names:  # a skipped one has not passed, but for lack of what the kernel does not have
        result = r"(ok|skipped 'this kernel has no .*')"
        assert re.search(rf"^{name} .*{result}\s*$", done.stdout, re.MULTILINE), (name, done.stdout)
