"""What the agent's process can read of the kubelet's folder, asked of the kernel.

The agent is uid 0 without a capability, so it reads what root owns or what all may read. The chart says as whom it and
the operator run. The kubelet says who owns a token: `projected.go` and `FsUserFrom` in its `pkg/volume`.
"""

import os
import shutil
import subprocess
import sys

import pytest

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="gives files to others")
READ = "import sys; sys.exit(not open(sys.argv[1]).read())"


def token_of(spec):
    """Return uid, gid and mode of the token that the kubelet writes for a pod, from 1.19 on."""
    of_pod = spec.get("securityContext") or {}
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    users = {
        (c.get("securityContext") or {}).get("runAsUser", of_pod.get("runAsUser")) for c in containers
    }  # None: the image's user, whom the kubelet does not know
    user = users.pop() if len(users) == 1 else None
    group = of_pod.get("fsGroup")
    if user is None and group is None:
        return 0, 0, 0o644
    return user or 0, group or 0, 0o640 if group else 0o600


@pytest.fixture
def reads(render, tmp_path):
    """Return a function that tells whether a process with the rights of the chart's agent can read a file."""
    pod = next(o for o in render() if o["kind"] == "DaemonSet")["spec"]["template"]["spec"]
    (agent,) = [c for c in pod["containers"] if c["name"] == "agent"]
    kept = agent["securityContext"]["capabilities"]
    assert kept["drop"] == ["ALL"]
    sets = ",".join(["-all", *(f"+{name.lower()}" for name in kept.get("add", ()))])
    user, group = pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]
    who = [f"--reuid={user}", f"--regid={group}", "--clear-groups", f"--bounding-set={sets}", f"--inh-caps={sets}"]

    def can(uid, gid, mode):
        file = tmp_path / "file"
        file.write_text("secret")
        os.chown(file, uid, gid)
        file.chmod(mode)
        for folder in (tmp_path, *tmp_path.parents[:2]):  # pytest's own
            folder.chmod(0o755)
        done = subprocess.run(
            ["setpriv", *who, sys.executable, "-c", READ, file], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 or "PermissionError" in done.stderr, done.stderr
        return done.returncode == 0

    return can


@AS_ROOT
def test_the_agent_cannot_read_the_operators_token(render, reads):
    pod = next(o for o in render() if o["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert token_of(pod) == (65532, 0, 0o600)
    assert not reads(*token_of(pod))


PODS = {
    "no user is named": ({}, {}, True),
    "root": ({"runAsUser": 0}, {}, True),
    "a user": ({"runAsUser": 1000}, {}, False),
    "a user of the container": ({}, {"runAsUser": 1000}, False),
    "a group alone": ({"fsGroup": 1000}, {}, True),
    "a user and a group": ({"runAsUser": 1000, "fsGroup": 1000}, {}, False),
}


@AS_ROOT
@pytest.mark.parametrize(("pod", "container", "readable"), PODS.values(), ids=PODS)
def test_it_reads_tokens_of_pods_that_run_as_root_or_name_no_user(reads, pod, container, readable):
    spec = {"securityContext": pod, "containers": [{"securityContext": container}]}
    assert reads(*token_of(spec)) is readable


@AS_ROOT
@pytest.mark.parametrize("mode", [0o644, 0o400])
def test_it_reads_the_volumes_of_secrets_which_root_owns_whatever_their_mode(reads, mode):
    assert reads(0, 0, mode)
