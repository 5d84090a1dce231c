"""The agent and its watchdog as processes, against a real TLS server and a tree of files."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from punctual.wire import GuestOrder, SetPoint, SetPoints
from punctual_agent.actuator import Actuator
from punctual_agent.cgroup import Cap
from punctual_agent.main import SettingError, Settings, main
from punctual_agent.state import State

UID = "7a9e1f0c-3b2d-4c5e-8f70-112233445566"
MINIMAL = {"NODE_NAME": "n1", "OPERATOR_URL": "https://operator.punctual.svc"}


def eventually(true, within=100.0):
    end = time.monotonic() + within
    pause = threading.Event()
    while not true():
        if time.monotonic() > end:
            return False
        pause.wait(0.02)
    return True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"NODE_NAME": ""}, "NODE_NAME is not set: set it in the agent's environment"),
        ({"OPERATOR_URL": ""}, "OPERATOR_URL is not set: set it in the agent's environment"),
        ({"OPERATOR_URL": "http://x"}, "OPERATOR_URL is 'http://x': set it to an https:// address"),
        ({"METRICS_PORT": "99999"}, "METRICS_PORT is '99999': set it to a number from 0 to 65535"),
        ({"LEASE": "soon"}, "LEASE is 'soon': set it to a number from 2 to 3600"),
        ({"PATIENCE": "nan"}, "PATIENCE is 'nan': set it to a number from 2 to 86400"),
        ({"LOG_LEVEL": "loud"}, "LOG_LEVEL is 'LOUD': set it to DEBUG, INFO, WARNING or ERROR"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(change, message, capsys):
    with pytest.raises(SettingError) as caught:
        Settings.read({**MINIMAL, **change})
    assert str(caught.value) == message
    assert main([], {**MINIMAL, **change}) == 2
    assert message in capsys.readouterr().err


def test_settings_have_defaults():
    settings = Settings.read(MINIMAL)
    assert (settings.cgroup_root, settings.pods_root) == ("/sys/fs/cgroup", "/var/lib/kubelet/pods")
    assert (settings.metrics_port, settings.lease) == (9464, 5.0)


def test_unknown_words_are_answered_with_the_usage(capsys):
    assert main(["serve"], {}) == 2
    assert "usage: punctual-agent" in capsys.readouterr().err


@pytest.fixture
def node(make_tree, tmp_path, authority):
    tree = make_tree("v2", "systemd")
    tree.pod(UID)
    tree.volume(UID)
    (tmp_path / "state").mkdir()
    (tmp_path / "token").write_text("secret")
    (tmp_path / "ca.crt").write_bytes(authority.ca)
    tree.environ = {
        **os.environ,
        "NODE_NAME": "n1",
        "TOKEN_FILE": str(tmp_path / "token"),
        "CA_FILE": str(tmp_path / "ca.crt"),
        "CGROUP_ROOT": str(tree.root),
        "PODS_ROOT": str(tree.pods),
        "STATE_DIR": str(tmp_path / "state"),
        "METRICS_PORT": "0",
        "METRICS_ADDRESS": "127.0.0.1",
        # a machine that stands still for a while ends no agent, no answer and no cap
        "LEASE": "600",
        "PATIENCE": "3600",
        "TIMEOUT": "60",
    }
    return tree


class Process:
    """A process of ours and what it logs."""

    def __init__(self, words, environ):
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words], env=environ, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self.lines = []
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True)
        self._reader.start()

    def events(self, name):
        found = [json.loads(line) for line in list(self.lines) if line.startswith("{")]
        return [line for line in found if line["event"] == name]

    def end(self, number):
        self.process.send_signal(number)
        status = self.process.wait(120)
        self._reader.join(60)
        self.process.stderr.close()
        return status


@pytest.fixture
def run():
    running = []

    def run(*words, environ):
        running.append(Process(words, environ))
        return running[-1]

    yield run
    for one in running:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)


def agent(run, node, operator):
    return run("punctual_agent.main", environ={**node.environ, "OPERATOR_URL": operator.url})


def cap(tree):
    return Actuator(tree.hierarchy()).hold(UID, None).cap


def told(tree, value):
    def look():
        try:
            return cap(tree) == Cap.of(value, 0.1)
        except ValueError:  # plain files, unlike the kernel's, are empty for a moment while another process writes
            return False

    return look


def answering(value, rest=0.9):
    return lambda report: SetPoints(epoch=1, pods=[SetPoint(uid=UID, cap=value, rest_cap=rest)])


def test_it_reports_each_second_obeys_and_ends_at_rest(run, node, operator):
    (node.volume_of(UID) / "progress").write_text("41")
    operator.respond = answering(0.3)
    one = agent(run, node, operator)
    assert eventually(told(node, 0.3)), one.lines
    operator.respond = answering(0.5)
    assert eventually(told(node, 0.5))
    with operator.heard:
        assert operator.heard.wait_for(lambda: len(operator.reports) >= 4, timeout=100)
    assert operator.reports[-1].pods[0].done == 41
    numbers = [report.sequence for report in operator.reports]
    assert numbers == sorted(set(numbers))  # who was late may have left one out
    assert set(operator.tokens) == {"Bearer secret"}
    assert one.end(signal.SIGTERM) == 0
    assert cap(node) == Cap.of(0.9, 0.1)
    assert [line["result"] for line in one.events("operator_exchange")] == ["answered"]  # a line when it changes


def test_it_keeps_caps_while_the_operator_is_away_and_hears_it_when_it_is_back(run, node, operator, make_operator):
    operator.respond = answering(0.3)
    one = agent(run, node, operator)
    assert eventually(told(node, 0.3)), one.lines
    operator.close()
    assert eventually(lambda: len(one.events("operator_exchange")) == 2)
    folder = next(path for path in node.pod_folder(UID).iterdir() if path.is_dir())
    node.folder(folder)  # something else resets the cap
    assert eventually(lambda: node.cap(folder) == Cap.of(0.3, 0.1))
    back = make_operator(port=operator.port)
    back.respond = answering(0.6)
    assert eventually(told(node, 0.6))
    assert one.end(signal.SIGTERM) == 0  # the agent obeys first and writes its line afterwards
    assert [line["result"] for line in one.events("operator_exchange")] == ["answered", "unreachable", "answered"]


def test_killed_agents_pods_are_put_to_rest_by_the_watchdog(run, node, operator):
    operator.respond = answering(0.3)
    one = agent(run, node, operator)
    dog = run("punctual_agent.main", "watchdog", environ=node.environ)
    assert eventually(told(node, 0.3)), one.lines
    assert one.end(signal.SIGKILL) == -signal.SIGKILL
    State(node.environ["STATE_DIR"]).beat(time.monotonic() - 3600)  # an hour passes
    assert eventually(told(node, 0.9))
    assert eventually(lambda: dog.events("watchdog_activated"))
    again = agent(run, node, operator)
    assert eventually(told(node, 0.3)), again.lines
    assert eventually(lambda: dog.events("watchdog_deactivated"))
    assert again.end(signal.SIGTERM) == 0
    assert dog.end(signal.SIGTERM) == 0


def test_a_guest_gets_what_is_free_and_a_killed_agents_guest_its_floor(run, node, operator):
    operator.respond = lambda report: SetPoints(
        epoch=1, pods=[SetPoint(uid=UID, cap=0.01, rest_cap=0.01, mode=GuestOrder())]
    )
    one = agent(run, node, operator)
    dog = run("punctual_agent.main", "watchdog", environ=node.environ)
    folder = next(path for path in node.pod_folder(UID).iterdir() if path.is_dir())
    with operator.heard:
        assert operator.heard.wait_for(lambda: operator.reports and operator.reports[-1].host.hosts, timeout=100)
    assert eventually(lambda: (there := node.cap(folder)) is not None and 0.3 < there.share <= 4.0), one.lines
    assert operator.reports[-1].host.guest_priority == "idle"
    capabilities = {"guest_priority": "idle", "guest_memory": "high", "guest_disk": ["weight", "class"]}
    said = capabilities | {"cgroup": "v2", "driver": "systemd"}
    started = one.events("agent_started")[0]
    assert {key: started[key] for key in said} == said
    assert one.end(signal.SIGKILL) == -signal.SIGKILL
    State(node.environ["STATE_DIR"]).beat(time.monotonic() - 3600)  # an hour passes
    assert eventually(told(node, 0.01))
    assert dog.end(signal.SIGTERM) == 0


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_it_tells_its_health_and_its_numbers_and_a_stopped_one_is_not_well(run, node, operator):
    operator.respond = answering(0.3)
    one = agent(run, node, operator)
    assert eventually(lambda: one.events("agent_started")), one.lines
    port = one.events("agent_started")[0]["port"]
    assert get(port, "/healthz") == (200, "ok\n")
    assert eventually(lambda: f'punctual_cpu_quota_cores{{uid="{UID}"}} 0.3' in get(port, "/metrics")[1])
    status, text = get(port, "/metrics")
    assert status == 200
    assert 'punctual_agent_exchanges_total{result="answered"}' in text
    assert get(port, "/else")[0] == 404


def test_what_a_replaced_leader_still_says_is_refused_and_counted(run, node, operator):
    def saying(epoch, value):
        return lambda report: SetPoints(epoch=epoch, pods=[SetPoint(uid=UID, cap=value, rest_cap=0.9)])

    operator.respond = saying(5, 0.3)
    one = agent(run, node, operator)
    assert eventually(told(node, 0.3)), one.lines
    operator.respond = saying(4, 0.8)
    port = one.events("agent_started")[0]["port"]
    assert eventually(lambda: re.search(r'result="lowerEpoch"} [2-9]', get(port, "/metrics")[1]))
    assert cap(node) == Cap.of(0.3, 0.1)
    assert "punctual_agent_epoch 5" in get(port, "/metrics")[1]


def test_an_agent_that_hangs_ends_itself_within_the_lease(run, node, operator):
    operator.respond = answering(0.3)
    # once it has been told something, its next look at the pods folder never comes back
    hanging = {**node.environ, "OPERATOR_URL": operator.url, "LEASE": "5"}
    code = (
        "import sys, threading; import punctual_agent.agent as a\n"
        "from punctual_agent.main import main\n"
        "a.Agent._read_files = lambda self, now: self.epoch and threading.Event().wait()\n"
        "sys.exit(main([]))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env=hanging, stderr=subprocess.PIPE, text=True)
    try:
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "Timeout" in said
    dog = run("punctual_agent.watchdog", environ=node.environ)
    assert eventually(told(node, 0.9)), dog.lines


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"CGROUP_ROOT": "/nowhere"}, "found neither a cgroup v2 hierarchy with the cpu controller nor v1"),
        ({"STATE_DIR": "/nowhere"}, "/nowhere"),
    ],
)
def test_where_it_cannot_work_it_says_why_and_ends(run, node, operator, change, message):
    done = subprocess.run(
        [sys.executable, "-m", "punctual_agent.main"],
        env={**node.environ, "OPERATOR_URL": operator.url, **change},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert message in json.loads(done.stderr.splitlines()[-1])["error"]
