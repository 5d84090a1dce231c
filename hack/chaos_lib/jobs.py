"""The jobs that arrive during a run: their specs, and their required results whatever happens meanwhile.

The result of a chunk is the sum of its units' numbers, so the reduce step shows each range with proof of its work.
Units take time, not CPU, except those of kind `burns`, because a machine of two cores must carry all jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from chaos_lib.templates import TEMPLATES
from punctual.labels import COST_PER_UNIT, DEADLINE, POOL_LABEL

Json = dict[str, Any]
NAMESPACE = "punctual-chaos"
MISFITS = "punctual-chaos-misfits"
"""Of tenants with unusual templates."""
LIMITED = "punctual-chaos-limited"
"""The same, with a LimitRange."""
SPACES = (NAMESPACE, MISFITS, LIMITED)
POOL = "chaos"
REDUCE = 5
"""Seconds."""
SIZE = {"cpu": "100m", "memory": "64Mi"}
"""Of a processor."""
STARTS = 3
"""Seconds that a pod of an ordinary Job takes beside its work, at most. A promise counts two of them by itself."""

WORK = """
import os, sys, time
from punctual import worker

pause, burn, crash = (float(os.environ[name]) for name in ("PAUSE", "BURN", "CRASH"))
tries = int(os.environ["CRASHES"])
total = done = 0
for unit in worker.units():
    if int(os.environ["PUNCTUAL_ATTEMPT"]) <= tries and done >= crash:
        sys.exit(1)
    end = time.process_time() + burn
    while time.process_time() < end:
        pass
    time.sleep(pause)
    total += unit
    done += 1
worker.result(str(total))
"""

SHELL = """
unit=$PUNCTUAL_BEGIN sum=0
cd "$PUNCTUAL_DIR"
while [ $unit -lt $PUNCTUAL_END ]; do
    sleep $PAUSE
    sum=$((sum + unit)) unit=$((unit + 1))
    LOOK
done
echo $sum >/dev/termination-log
"""
"""A program that knows nothing of offers."""
TELL = "echo $((unit - PUNCTUAL_BEGIN)) >next; mv next progress"
LIES = (
    "echo -1 >progress",
    "rm -f progress; ln -s /etc/shadow progress",
    "rm -f progress; mkfifo progress",
    "truncate -s 1G progress",
    "echo $((unit * 1000000 + 1000000)) >progress",
    "echo 3 >progress; echo 0 >end",
)

JOIN = 'cd "$PUNCTUAL_RESULTS"; for r in [0-9]*-*; do echo "$r $(cat "$r")"; done | sort -n >/dev/termination-log'
"""Tells what was accounted: a line per range, with what its worker said."""

Expected = Literal["done", "failed", "either", "refused"]


@dataclass
class Wish:
    """A job as it was asked for."""

    name: str
    kind: str
    body: Json
    expected: Expected
    """`done`, or refused for want of room: what becomes of a job in which nothing is wrong."""
    reasons: tuple[str, ...] = ()
    """Reasons it may end with otherwise."""
    words: str = ""
    """A part of the message of a failure, or of the refusal where one is expected."""
    told: str = ""
    """A reason that must be reported before a failure."""
    excused: bool = True
    """Whether want of room may refuse it instead."""
    deadlines: list[float] = field(default_factory=list)
    """Seconds after creation that were asked for, edits included."""
    deleted: bool = False
    job: Json | None = None
    """The ordinary Job that asks for it. None: it is asked for as it is."""
    created: float | None = None
    """When the Job that asks for it was created. None: none does."""

    @property
    def units(self) -> int:
        """How many."""
        return int(self.body["spec"]["units"])


@dataclass(frozen=True)
class Maker:
    """Makes jobs, each from its number and the seed."""

    seed: int
    image: str
    secret: str
    """Stands in each template's environment."""
    kinds: tuple[str, ...] = ()
    """What jobs there are. Empty: all of `KINDS`."""

    def job(self, number: int) -> Wish:
        """Return the job of that number."""
        rng = Random(f"{self.seed} job {number}")
        kinds = list(self.kinds or KINDS)
        (kind,) = rng.choices(kinds, [KINDS[k][0] for k in kinds])
        return KINDS[kind][1](self, rng, f"{kind}-{number}", kind)

    def misfit(self, number: int, nodes: Sequence[str]) -> Wish:
        """Return the job with an unusual template of that number: each round has all, in an order of its own."""
        turn, at = divmod(number - 1, len(TEMPLATES))
        kind = Random(f"{self.seed} misfits {turn}").sample(list(TEMPLATES), len(TEMPLATES))[at]
        template = TEMPLATES[kind]
        spec = self._spec(template.body(self.image, nodes), units=4, chi=1, most=1, slack=90) | template.job
        wish = self._wish(f"{kind}-{number}", kind, spec, template.right, *filter(None, (template.reason,)))
        wish.body["metadata"]["namespace"] = LIMITED if template.limited else MISFITS
        wish.words, wish.told, wish.excused = template.words, template.told, template.right != "refused"
        return wish

    def last(self) -> Wish:
        """Return a job that nothing happens to."""
        return self._wish("last", "shell", self._spec(self._shell(TELL, 0.5), units=30, chi=0.8, most=2, slack=90))

    def _spec(
        self, template: Json, *, units: int, chi: float | None, most: int, slack: float, theta: float = 4, **more: Any
    ) -> Json:
        """Return a job's spec with a deadline that leaves some seconds of slack on so many processors."""
        chi_ = chi or 1.0
        deadline = round(theta + units * chi_ / most + 2 * REDUCE + slack)
        spec = {
            "pool": POOL,
            "units": units,
            "deadline": f"{deadline}s",
            "processors": {"max": most},
            "chunkRetries": 50,  # this program kills them
            "stallTimeout": "15s",
            "template": template,
            **more,
        }
        if chi:
            spec["cost"] = {"perUnit": f"{chi * 1000:.0f}ms", "startup": f"{theta:.0f}s"}
        return spec

    def _container(self, *command: str, **env: object) -> Json:
        pairs = {"CHAOS_SECRET": self.secret, **env}
        return {
            "name": "main",
            "image": self.image,
            "command": list(command),
            "env": [{"name": name, "value": str(value)} for name, value in pairs.items()],
        }

    def _python(self, pause: float, *, burn: float = 0, crash: float = 0, crashes: int = 0) -> Json:
        env = {"PAUSE": pause, "BURN": burn, "CRASH": crash, "CRASHES": crashes}
        return {"spec": {"containers": [self._container("python3", "-c", WORK, **env)]}}

    def _shell(self, look: str, pause: float) -> Json:
        return {"spec": {"containers": [self._container("sh", "-ec", SHELL.replace("LOOK", look), PAUSE=pause)]}}

    def _reduce(self) -> Json:
        template = {"spec": {"containers": [self._container("sh", "-ec", JOIN)]}}
        return {"duration": f"{REDUCE}s", "template": template}

    def _wish(self, name: str, kind: str, spec: Json, expected: Expected = "done", *reasons: str) -> Wish:
        body = {
            "apiVersion": "punctual.dev/v1alpha1",
            "kind": "DivisibleJob",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }
        return Wish(name, kind, body, expected, reasons, deadlines=[float(spec["deadline"].removesuffix("s"))])

    def _sized(self, rng: Random, chi: float) -> Json:
        """Return numbers of a job of middling size."""
        most = rng.randint(1, 4)
        return {
            "units": round(most * rng.uniform(8, 22) / chi),
            "chi": chi,
            "most": most,
            "slack": rng.uniform(25, 80),
        }

    def waits(self, rng: Random, name: str, kind: str) -> Wish:
        """Let Python work with the helper, and reduce."""
        pause = rng.choice((0.3, 0.6, 1.0))
        spec = self._spec(self._python(pause), theta=6, reduce=self._reduce(), **self._sized(rng, 1.2 * pause + 0.05))
        return self._wish(name, kind, spec)

    def resumes(self, rng: Random, name: str, kind: str) -> Wish:
        """Make the same with units that are durable once reported."""
        wish = self.waits(rng, name, kind)
        wish.body["spec"]["restart"] = "Resume"
        return wish

    def burns(self, rng: Random, name: str, kind: str) -> Wish:
        """Let units take CPU time."""
        sized = self._sized(rng, 0.5) | {"most": 1}
        sized["units"] = min(sized["units"], 30)
        spec = self._spec(self._python(0, burn=0.03), theta=6, reduce=self._reduce(), **sized)
        return self._wish(name, kind, spec)

    def shell(self, rng: Random, name: str, kind: str) -> Wish:
        """Let a shell work, that reports or does not."""
        pause = rng.choice((0.5, 1.0))
        spec = self._spec(self._shell(rng.choice((TELL, ":")), pause), **self._sized(rng, pause + 0.25))
        if rng.random() < 0.5:
            spec["reduce"] = self._reduce()
        return self._wish(name, kind, spec)

    def lies(self, rng: Random, name: str, kind: str) -> Wish:
        """Let a shell work with wrong files; its exit status counts."""
        spec = self._spec(self._shell(rng.choice(LIES), 0.5), reduce=self._reduce(), **self._sized(rng, 0.8))
        return self._wish(name, kind, spec)

    def crashes(self, rng: Random, name: str, kind: str) -> Wish:
        """Let each chunk's first attempt or two end badly."""
        template = self._python(0.5, crash=rng.randint(0, 8), crashes=rng.randint(1, 2))
        spec = self._spec(template, theta=6, reduce=self._reduce(), **self._sized(rng, 0.7))
        spec["restart"] = rng.choice(("Redo", "Resume"))
        return self._wish(name, kind, spec)

    def measured(self, rng: Random, name: str, kind: str) -> Wish:
        """Declare no cost: pilots."""
        pause = rng.choice((0.3, 0.6))
        template = rng.choice((self._python(pause), self._shell(TELL, pause)))
        spec = self._spec(template, units=rng.randint(40, 80), chi=None, most=3, slack=100, reduce=self._reduce())
        return self._wish(name, kind, spec, "done", "InfeasibleStartup")

    def ordinary(self, rng: Random, name: str, kind: str) -> Wish:
        """Ask with an ordinary Job: each index is a unit, and sleeps. One in five has no cost declared."""
        seconds, most = rng.choice((2, 3, 5)), rng.randint(1, 4)
        takes = seconds + STARTS
        container = self._container("sleep", f"{seconds}")
        units, slack = round(most * rng.uniform(8, 22) / takes) + 1, rng.uniform(60, 120)
        spec = self._spec({"spec": {"containers": [container]}}, units=units, chi=takes, most=most, slack=slack)
        wish = self._wish(name, kind, spec)
        notes = {DEADLINE: spec["deadline"]} | ({COST_PER_UNIT: f"{takes - 2}s"} if rng.random() < 0.8 else {})
        work = {**container, "resources": {"requests": SIZE, "limits": SIZE}}
        pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [work]}
        ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
        wish.job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {**wish.body["metadata"], "labels": {POOL_LABEL: POOL}, "annotations": notes},
            "spec": {
                "suspend": True,
                "completions": units,
                "parallelism": most,
                "completionMode": "Indexed",
                "backoffLimit": 50,  # this program kills them
                "podFailurePolicy": {"rules": [ignored]},
                "template": {"spec": pod},
            },
        }
        return wish

    def hopeless(self, rng: Random, name: str, kind: str) -> Wish:
        """Ask for what always fails."""
        template = self._python(0.3, crash=rng.randint(0, 3), crashes=1000)
        spec = self._spec(template, units=10, chi=0.5, most=1, slack=90, theta=6) | {"chunkRetries": rng.randint(0, 1)}
        return self._wish(name, kind, spec, "failed", "ChunkFailed", "Stalled")

    def imageless(self, rng: Random, name: str, kind: str) -> Wish:
        """Ask for an image that does not exist."""
        template = self._shell(":", 0.5)
        template["spec"]["containers"][0]["image"] = f"registry.invalid/nothing:{rng.randint(1, 9)}"
        few = {"chunkRetries": 0, "imagePullTimeout": "45s"}  # the usual five minutes are longer than a short run
        spec = self._spec(template, units=10, chi=1, most=1, slack=90) | few
        return self._wish(name, kind, spec, "failed", "ChunkFailed")

    def infeasible(self, rng: Random, name: str, kind: str) -> Wish:
        """Ask for more than there ever is room for."""
        spec = self._spec(self._shell(":", 0.5), units=rng.randint(10**4, 10**9), chi=1, most=4, slack=0)
        spec["deadline"] = "40s"
        return self._wish(name, kind, spec, "refused", "InfeasibleCapacity", "InfeasibleStartup")

    def malformed(self, rng: Random, name: str, kind: str) -> Wish:
        """Ask for a pool that is not there, or a pod that cannot be."""
        spec = self._spec(self._shell(":", 0.5), units=10, chi=1, most=1, slack=60)
        if rng.random() < 0.5:
            return self._wish(name, kind, spec | {"pool": "nowhere"}, "refused", "PoolNotFound")
        spec["template"]["spec"]["containers"][0]["image"] = ""
        return self._wish(name, kind, spec, "refused", "PodRefused")


Make = Callable[[Maker, Random, str, str], Wish]
KINDS: dict[str, tuple[float, Make]] = {
    "waits": (4, Maker.waits),
    "resumes": (3, Maker.resumes),
    "burns": (1, Maker.burns),
    "shell": (3, Maker.shell),
    "lies": (1, Maker.lies),
    "crashes": (2, Maker.crashes),
    "measured": (1, Maker.measured),
    "ordinary": (3, Maker.ordinary),
    "hopeless": (1, Maker.hopeless),
    "imageless": (0.5, Maker.imageless),
    "infeasible": (1, Maker.infeasible),
    "malformed": (0.5, Maker.malformed),
}
"""How often each comes, and how it is made."""
