"""The parallel program of the experiment on aligned slices: two ranks on two nodes, and each node's own work beside it.

It is the program of `examples/mpi`, from its manifest. Each node has a program of its own that uses all CPU that it
gets, and for a part of the experiment one that is interactive.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import yaml
from lib import testbed
from lib.testbed import ROOT, SYSTEM, Json

from experiments_lib.ground import NAMESPACE, Ground, target_rate
from experiments_lib.programs import PYTHON
from experiments_lib.ranks import Node, Rank, Seen
from punctual.labels import POOL_LABEL

POOL, NAME = "experiments-aligned", "mpi"
LIMIT, SHARE, PERIOD = 0.6, 0.5, 0.1
"""Cores of a rank: its limit, and what it gets of each period, s."""
RATE = f"{100 * SHARE / LIMIT:.1f}%"
FIRST, SECOND = f"{NAME}-0.{NAME}", f"{NAME}-1.{NAME}"
TCP = "export RANK=${{HOSTNAME##*-}} RANKS=2 PEERS=" + FIRST + " WAIT={wait}; exec ./bsp-tcp {grain:g}"
MPI = "case $HOSTNAME in *-0) exec {start} ;; *) exec ./launch.py serve " + FIRST + " ;; esac"
STARTS = {
    "Open MPI": "mpirun.openmpi --host $HOSTNAME," + SECOND + " --bind-to none --leave-session-attached "
    "--mca plm_rsh_agent /opt/mpi/launch.py ./bsp-openmpi {grain:g}",
    "MPICH": "mpiexec.mpich -n 2 -localhost " + FIRST + " -hosts $HOSTNAME," + SECOND + " -launcher rsh "
    "-launcher-exec /opt/mpi/launch.py ./bsp-mpich {grain:g}",
}
BURST, EACH = 0.005, 0.05
"""CPU seconds of the interactive program's work, and seconds from one to the next."""
INTERACTIVE = f"""
import time

due = time.monotonic()
with open("/punctual/waits", "w", buffering=1) as file:
    while True:
        due = max(due + {EACH}, time.monotonic() - 1.0)
        time.sleep(max(0.0, due - time.monotonic()))
        end = time.process_time() + {BURST}
        while time.process_time() < end:
            pass
        file.write(f"{{time.monotonic():.6f}} {{time.monotonic() - due:.6f}}\\n")
"""
"""Writes the time of each answer, and the seconds since it was asked for."""
LONGEST = 5400
"""Seconds after which the nodes' own work ends."""
BUSY = ["sh", "-c", "while :; do :; done"]


class Program(NamedTuple):
    """How the ranks exchange data, and how much they compute between two exchanges."""

    name: str
    """spin, block, Open MPI or MPICH."""
    grain: float
    """ms of CPU."""

    @property
    def key(self) -> str:
        """Its name in the points."""
        return f"{self.name}, {self.grain:g} ms"

    @property
    def command(self) -> str:
        """What a rank's shell runs."""
        if self.name in STARTS:
            return f"cd /opt/mpi; {MPI.format(start=STARTS[self.name].format(grain=self.grain))}"
        return f"cd /opt/mpi; {TCP.format(wait=self.name, grain=self.grain)}"


class Counters(NamedTuple):
    """All counters at a moment. Each tuple has a number for each node."""

    at: float
    ranks: tuple[Seen, ...]
    local: tuple[float, ...]
    agent: tuple[float, ...]
    busy: float
    """CPU seconds that the machine has used."""


class Application:
    """The program on both nodes. It is started anew for each kind of exchange and each grain."""

    def __init__(self, ground: Ground, image: str) -> None:
        self.nodes = [Node(name) for name in ground.nodes]
        self.ranks: list[Rank] = []
        self.agents: list[Json] = []
        self._ground, self._image = ground, image
        self._local: list[Json] = []
        self._interactive: list[Json] = []

    def begin(self) -> None:
        """Let the nodes' own work run."""
        self._local = self._beside("local", BUSY)
        words = ("-n", SYSTEM, "-l", "app.kubernetes.io/component=agent")
        found = {pod["spec"]["nodeName"]: pod for pod in self._ground.kubectl.get("pods", *words)["items"]}
        self.agents = [found[node.name] for node in self.nodes]

    def start(self, program: Program) -> None:
        """Run the program in place of the one before. The nodes' own work stands still meanwhile: that is quicker."""
        self._let(run=False)
        self.stop()
        for body in manifests(program, self._image):
            self._ground.create(body)
        pods = self._ground.until(self._running, within=120, what=f"both ranks of {program.key} to run")
        self.ranks = [Rank(node, pod) for node, pod in zip(self.nodes, pods, strict=True)]
        self._ground.until(self._counts, within=60, what=f"{program.key} to iterate")
        self._let(run=True)

    def _let(self, *, run: bool) -> None:
        for node, pod in zip(self.nodes, self._local, strict=True):
            node.signal(pod, signal.SIGCONT if run else signal.SIGSTOP)

    def stop(self) -> None:
        """Remove the program."""
        words = ("delete", "statefulset,service", NAME, "-n", NAMESPACE, "--ignore-not-found", "--cascade=foreground")
        self._ground.kubectl.run(*words, "--timeout=60s")
        self.ranks = []

    def _running(self) -> list[Json] | None:
        pods = self._ground.pods(f"app={NAME}").values()
        by_node = {pod["spec"]["nodeName"]: pod for pod in pods if testbed.is_ready(pod)}
        return [by_node[node.name] for node in self.nodes] if len(by_node) == len(self.nodes) else None

    def _counts(self) -> bool:
        with suppress(OSError, ValueError):
            return all(rank.seen().iterations > 0 for rank in self.ranks)
        return False

    def _beside(self, name: str, command: list[str]) -> list[Json]:
        names = [f"{name}-{k}" for k in range(len(self.nodes))]
        for one, node in zip(names, self.nodes, strict=True):
            body = self._ground.pod(one, node.name, command)
            body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "20m"}}
            body["spec"]["activeDeadlineSeconds"] = LONGEST  # also if the experiment is killed
            self._ground.create(body)

        def running() -> list[Json] | None:
            pods = self._ground.pods()
            return [pods[one] for one in names] if pods.keys() >= set(names) else None

        return self._ground.until(running, within=60, what=f"the nodes' own work ({name}) to run")

    # what is seen

    def counters(self) -> Counters:
        """Read all counters."""
        pairs = zip(self.nodes, self._local, strict=True)
        return Counters(
            time.time(),
            tuple(rank.seen() for rank in self.ranks),
            tuple(node.cpu(pod) for node, pod in pairs),
            tuple(node.cpu(pod) for node, pod in zip(self.nodes, self.agents, strict=True)),
            busy(),
        )

    def interactive(self) -> None:
        """Let an interactive program run on each node, too."""
        self._interactive = self._beside("interactive", [PYTHON, "-c", INTERACTIVE])

    def waits(self, since: float) -> list[float]:
        """Return how long each answer of the interactive programs took since a moment of the monotonic clock, s."""
        found = []
        for node, pod in zip(self.nodes, self._interactive, strict=True):
            lines = (node.volume(pod) / "waits").read_text().splitlines()[:-1]
            found += [float(wait) for at, wait in (line.split() for line in lines) if float(at) >= since]
        return found


def manifests(program: Program, image: str) -> list[Json]:
    """Return service and ranks as in the example, with another program."""
    text = (ROOT / "examples/mpi/mpi.yaml").read_text(encoding="utf-8")
    service, ranks = (body for body in yaml.safe_load_all(text) if body["kind"] != "TargetRate")
    spec = ranks["spec"]["template"]["spec"]
    spec["nodeSelector"] = {POOL_LABEL: POOL}
    (container,) = spec["containers"]
    container["image"], container["command"] = image, ["sh", "-c", program.command]
    for kind in ("requests", "limits"):
        container["resources"][kind]["cpu"] = f"{1000 * LIMIT:.0f}m"
    for body in (service, ranks):
        body["metadata"]["namespace"] = NAMESPACE
    return [service, ranks]


def target(program: Program, *, longest: float = PERIOD) -> Json:
    """Return the TargetRate that aligns the ranks."""
    alone = LIMIT / (1e-3 * program.grain + 1e-4)
    period = {"max": f"{1000 * longest:g}ms"}
    more = {"maxRate": f"{alone:.4g}/s", "epsilon": "0.1%", "coscheduling": "Aligned", "period": period}
    return target_rate(NAME, POOL, RATE, **more)


def run_of(program: Program, before: Counters, after: Counters) -> Json:
    """Return what happened between two moments, in cores: also what the machine did beside the experiment."""
    seconds = after.at - before.at
    pairs = list(zip(before.ranks, after.ranks, strict=True))
    rates = [(b.iterations - a.iterations) / (b.at - a.at) if b.at > a.at else 0.0 for a, b in pairs]
    ranks = sum(b.cpu - a.cpu for a, b in pairs)
    local = [b - a for a, b in zip(before.local, after.local, strict=True)]
    agents = [b - a for a, b in zip(before.agent, after.agent, strict=True)]
    return {
        "rate": round(1e-3 * program.grain * min(rates), 5),
        "local": round(fmean(local) / seconds, 5),
        "agent": round(fmean(agents) / seconds, 5),
        "other": round((after.busy - before.busy - ranks - sum(local)) / seconds, 4),
    }


def busy() -> float:
    """Return the CPU seconds that the machine has used."""
    with Path("/proc/stat").open(encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + irq + softirq) / 100
