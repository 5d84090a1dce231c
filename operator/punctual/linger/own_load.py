"""The load of a node's own work: the tasks of its hosts that are ready, for each CPU.

Solsona 2002 takes the mean length of the ready queue, because utilization says nothing of what is above a full CPU. The
kernel has one such length for the whole machine, which nodes in containers share, and none for the pods of a node in
both versions of cgroups. So the length is told from CPU counters.

Applications that are held have taken a part of the CPUs. Of the rest R the hosts used U, which is ρ = U/R. While ρ < 1,
CPUs of speed R/C with a common queue have C·ρ + ρ^√(2(C+1)) / (1 − ρ) tasks that run or wait (Sakasegawa 1977). With
one CPU that is the ρ/(1 − ρ) of the M/M/1 queue.

Near ρ = 1, that says little, and how the CPU was divided says more: k pods without an end get equal parts. So there are
at most U² / Σu² tasks, the effective number of pods: k for k equal ones, and little more if others use little beside
them. Weights make parts unequal, and such pods count as fewer, but never as less than they have used. A pod that has
used several CPUs counts as so many tasks of one: Σ u·min(u, 1) stands in the place of Σu².
"""

from collections.abc import Iterable
from math import inf, sqrt


def own_load(used: Iterable[float], held: float, cores: float) -> float:
    """Return the mean number of ready tasks of a node's own work, for each of its CPUs.

    used   what each pod of the node's own work has used in some time, cores
    held   what the pods of held applications have used in it, cores
    cores  CPU of the node. A node with less than one counts as one slow CPU.

    It rises with what applications take, and when all pods use more by the same factor.
    """
    pods = [min(each, cores) for each in used if each > 0.0]
    total = sum(pods)
    if not 0.0 < cores < inf or total <= 0.0:
        return 0.0
    cpus = max(cores, 1.0)
    part = total / max(cores - max(0.0, held), total)
    most = 1.0 / sum(each / total * (min(each, 1.0) / total) for each in pods)
    if part >= 1.0:
        return most / cpus
    waiting: float = part ** sqrt(2.0 * (cpus + 1.0)) / (1.0 - part)
    return min(cpus * part + waiting, most) / cpus
