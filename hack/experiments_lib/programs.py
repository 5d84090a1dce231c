"""The programs of the experiments: one that needs CPU, one that needs memory, one that needs the disk.

They run in the image of `examples/proteins`. A unit takes about ten milliseconds of CPU, so that a second shows several
of them on a tenth of a core.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

PYTHON = "/opt/punctual/venv/bin/python"

SEARCH = """
import os, subprocess
from punctual import worker

proteins = open("/data/E.faa", "rb").read().split(b"\\n>")
for unit in worker.units():
    protein = b">" + proteins[unit % len(proteins)].lstrip(b">")
    command = ("blastp", "-db", "/data/C", "-evalue", "1e-5", "-outfmt", "6")
    subprocess.run(command, input=protein, stdout=subprocess.DEVNULL, check=True)
"""
"""NCBI's blastp, once for each protein of a bacterium."""
RANK = """
import numpy
from punctual import worker

pages, edges = 1 << 22, 1 << 17
random = numpy.random.default_rng(1)
rank, new = random.random(pages), numpy.zeros(pages)
links = random.integers(0, pages, (16, edges))
for unit in worker.units():
    for step in range(4):
        new[:edges] += 0.85 * rank[links[(4 * unit + step) % 16]]
"""
"""Page ranks of a random graph with numpy: each edge reads another part of an array of 32 MiB."""
LEDGER = """
import os, sqlite3
from punctual import worker

name = os.environ["PUNCTUAL_DIR"] + "/ledger.db"
ledger = sqlite3.connect(name)
ledger.executescript("pragma synchronous=FULL; create table if not exists entry (name text, pad blob)")
for unit in worker.units():
    for step in range(8):
        ledger.execute("insert into entry values (?, zeroblob(20000))", (str(unit),))
        ledger.commit()
    if unit % 50 == 0:
        ledger.executescript("delete from entry; vacuum")
"""
"""SQLite: eight transactions of 20 kB, each of which waits until the disk has it."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program: its name, what limits it, and its text."""

    name: str
    bound: str
    text: str
    few: int
    """Units of the short run that measures what a start costs."""
    many: int

    @property
    def command(self) -> list[str]:
        """How a container runs it."""
        return [PYTHON, "-c", self.text]


BLASTP = Program("blastp", "CPU", SEARCH, 2, 42)
PAGERANK = Program("pagerank", "memory", RANK, 10, 210)
SQLITE = Program("sqlite", "disk", LEDGER, 5, 105)
PROGRAMS = (BLASTP, PAGERANK, SQLITE)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of a unit and of a start, and the seconds that a unit takes on an idle core."""

    unit: float
    start: float
    alone: float

    def seconds(self, cpu: float) -> float:
        """Return the seconds that a unit takes on a processor of ``cpu`` cores. While it waits, its quota fills up."""
        return max(self.unit / cpu, self.alone)

    @property
    def waiting(self) -> float:
        """The part of a unit's time on an idle core in which the program waits."""
        return max(0.0, 1.0 - self.unit / self.alone) if self.alone > 0.0 else 0.0


MEASURE = """
import json, os, resource, subprocess, sys, time
found = {}
os.makedirs("/tmp/measure")
for name, command, *sizes in json.loads(sys.argv[1]):
    found[name] = []
    for size in sizes:
        environment = dict(os.environ, PUNCTUAL_BEGIN="0", PUNCTUAL_END=str(size), PUNCTUAL_DIR="/tmp/measure")
        runs = []
        for _ in range(2):
            for file in os.listdir("/tmp/measure"):
                os.remove("/tmp/measure/" + file)
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            subprocess.run(command, env=environment, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            runs.append((cpu, time.monotonic() - began))
        found[name].append(min(runs))
open("/dev/termination-log", "w").write(json.dumps(found))
"""


def measuring_command() -> list[str]:
    """Return the command of the pod that measures; its termination message is for :func:`costs`."""
    return [PYTHON, "-c", MEASURE, json.dumps([[p.name, p.command, p.few, p.many] for p in PROGRAMS])]


def costs(message: str) -> dict[str, Cost]:
    """Read what was measured: (CPU seconds, seconds) of a short and of a long run of each program."""
    found = json.loads(message)
    result = {}
    for program in PROGRAMS:
        (few_cpu, few_wall), (many_cpu, many_wall) = found[program.name]
        units = program.many - program.few
        unit = max(1e-6, (many_cpu - few_cpu) / units)
        result[program.name] = Cost(
            unit=unit,
            start=max(0.0, few_cpu - program.few * unit),
            alone=max(unit, (many_wall - few_wall) / units),
        )
    return result
