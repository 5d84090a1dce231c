"""The same jobs put to one test of admission after the other: who is admitted, and who of those is late."""

from math import inf
from typing import NamedTuple

from machine import Machine

from punctual.benchmarks.literal import AcFast, EdfIit2, Task
from punctual.scheduling.admission.fast_queue import FastQueue
from punctual.sim.trace import jobs


class Outcome(NamedTuple):
    """``rejected``: the share that was refused. ``missed``: the share that was admitted and late."""

    rejected: float
    missed: float

    @property
    def lost(self):
        """The share of jobs not done in time, refused or missed."""
        return self.rejected + self.missed


def _outcome(asked, admitted, missed):
    return Outcome(1 - admitted / asked, missed / asked)


def fast(trace, processors, cost, *, one_port=True):
    line = FastQueue(processors, beta=cost.beta if one_port else None)
    machine = Machine(processors, one_port=one_port)

    def gave(chunk, waiting, before):
        line.start(chunk.start, waiting.turn, chunk.load, cost, left=waiting.left)
        if before > 0.0:
            line.busy.forget(chunk.start)

    machine.gave = gave
    admitted = 0
    for job in jobs(trace):
        machine.run(job.arrival)
        turn = (machine.now + job.deadline, machine.now, job.id)
        room = line.room(machine.now, turn, job.load, cost)
        if room.fits:
            line.join(turn, room)
            machine.submit(job.id, job.load, turn[0], cost)
            admitted += 1
    machine.run(inf)
    return _outcome(len(jobs(trace)), admitted, len(machine.missed))


def literal(trace, processors, cost, *, left=False):
    test = AcFast(processors, cost, left=left)
    tasks = {}
    machine = Machine(processors, one_port=True)
    machine.gave = lambda chunk, waiting, before: test.given(
        tasks[chunk.uid], tasks[chunk.uid].load - waiting.left if waiting.left else tasks[chunk.uid].load
    )
    for job in jobs(trace):
        machine.run(job.arrival)
        waiting = {w.turn[2] for w in machine.waiting}
        test.queue = [t for t in test.queue if t.uid in waiting]  # those that missed are gone
        task = Task(job.id, machine.now, job.load, machine.now + job.deadline)
        if test.decide(task, port=machine.port, free=machine.free):
            tasks[job.id] = task
            machine.submit(job.id, job.load, task.due, cost)
    machine.run(inf)
    return _outcome(len(jobs(trace)), len(tasks), len(machine.missed))


def exact(trace, processors, cost):
    """EDF-IIT-2 carries out what it has planned, and plans the rest anew for each job. Concurrent where τ is 0."""
    test = EdfIit2(cost)
    port, free, admitted, late = 0.0, [0.0] * processors, 0, set()

    def carry_out(until):
        nonlocal port
        for piece in test.schedule:
            if piece.start < until:
                free[piece.processor], port = piece.end, max(port, piece.sent)
                piece.task.load -= piece.load
                if piece.end > piece.task.due + 1e-6:
                    late.add(piece.task.uid)
        test.schedule = [p for p in test.schedule if p.start >= until]
        test.queue = [t for t in test.queue if any(p.task is t for p in test.schedule)]

    for job in jobs(trace):
        carry_out(job.arrival)
        task = Task(job.id, job.arrival, job.load, job.arrival + job.deadline)
        admitted += test.decide(task, port=port, free=free)
    carry_out(inf)
    return _outcome(len(jobs(trace)), admitted, len(late))
