"""An agent as a process against the operator's own exchange, the one's clock far from the other's."""

import asyncio
import os
import signal
import ssl
import sys
import time
from types import SimpleNamespace

import pytest
from clocks import clock

from punctual.kube.agents.ca import Lifetimes, make_serving, new_trust
from punctual.kube.agents.identity import Identity, Reviewer
from punctual.kube.agents.report_server import ReportServer
from punctual.kube.agents.set_points import SetPointStore
from punctual.scheduling.model.actions import SendSetPoint
from punctual_agent.actuator import Actuator
from punctual_agent.cgroup import Cap

UID = "7a9e1f0c-3b2d-4c5e-8f70-112233445566"
ACCOUNT = "system:serviceaccount:punctual:punctual-agent"


async def eventually(holds, *, within=100.0):
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110  it is another process' doing
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("off", [-600.0, 600.0], ids=["ten minutes slow", "ten minutes fast"])
async def test_an_agent_whose_clock_is_wrong_is_heard_and_told_as_any_other(make_tree, tmp_path, off):
    """Only the difference between the two shows, so it is the operator that lives at another time: its clock and its
    certificates."""
    heard, refused = [], []

    def now():
        return time.time() - off

    async def review(_token):
        return Identity(ACCOUNT, "n1")

    trust = new_trust(now(), lifetimes=Lifetimes())
    serving = make_serving(trust.signing, ["localhost"], now(), lifetimes=Lifetimes())
    (tmp_path / "tls.pem").write_text(serving.key + serving.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.pem")
    receiver = SimpleNamespace(
        leading_epoch=lambda: 1, heard=heard.append, heard_another=heard.append, count_refusal=refused.append
    )
    by = clock(now=now)
    set_points = SetPointStore()
    set_points.put(SendSetPoint(node="n1", pod=UID, cap=0.3, period=0.1, units=10, end=now() + 3600))
    report_server = ReportServer(set_points, Reviewer(review, by), receiver, clock=by, account=ACCOUNT)
    port = await report_server.start(context, host="127.0.0.1", port=0)

    tree = make_tree()
    tree.pod(UID)
    (tree.volume(UID) / "progress").write_text("4")
    (tmp_path / "state").mkdir()
    (tmp_path / "token").write_text("secret")
    (tmp_path / "ca.crt").write_text(trust.bundle)
    environ = {
        **os.environ,
        "NODE_NAME": "n1",
        "OPERATOR_URL": f"https://localhost:{port}",
        "TOKEN_FILE": str(tmp_path / "token"),
        "CA_FILE": str(tmp_path / "ca.crt"),
        "CGROUP_ROOT": str(tree.root),
        "PODS_ROOT": str(tree.pods),
        "STATE_DIR": str(tmp_path / "state"),
        "METRICS_PORT": "0",
        "METRICS_ADDRESS": "127.0.0.1",
        "LEASE": "600",
        "TIMEOUT": "60",
    }

    def capped():
        try:
            return Actuator(tree.hierarchy()).hold(UID, None).cap == Cap.of(0.3, 0.1)
        except ValueError:  # plain files, unlike the kernel's, are empty for a moment while another process writes
            return False

    try:
        for beginning in range(2):  # another process of the same clock is the younger one
            command = (sys.executable, "-m", "punctual_agent.main")
            agent = await asyncio.create_subprocess_exec(*command, env=environ)
            try:
                before = len(heard)
                await eventually(lambda before=before: len(heard) >= before + 3)
                await eventually(capped)
            finally:
                agent.send_signal(signal.SIGTERM if beginning == 0 else signal.SIGKILL)
                async with asyncio.timeout(120):
                    await agent.wait()
    finally:
        await report_server.stop()
    assert [p.done for p in heard[-1].pods] == [4]
    assert refused == []
