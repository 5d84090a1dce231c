"""What must hold over the history of a play."""

from chaos_lib import ledger

from edge.applications import ALONE
from edge.plan import TAKING
from edge.users import BATCH_JOBS, IN_SPACE, JOBS
from edge.virtual import BEGIN
from punctual.control.phase import wrap
from punctual.errors import Fenced, StoreFellBack
from punctual.labels import PLACEHOLDER, PROCESSOR


def broken(world, writes):
    """Return what is wrong, as sentences."""
    scribe = world.scribe
    pods, events = [pod for pod in scribe.pods.values() if pod.job], _events(world)
    jobs = [job for uid, job in scribe.jobs.items() if uid not in world.former]
    _excuse(world)
    wrong = ledger.audit(world.wishes, jobs, pods, world.struck)
    wrong += world.history.wrong
    wrong += _crowded(world)
    wrong += _intruders(world)
    wrong += _kept(world)
    wrong += _held(world)
    wrong += _too_many(world)
    wrong += _again(world)
    wrong += _batches(world)
    wrong += _moved(world)
    wrong += _together(world)
    wrong += _unanswered(world)
    former = [(wish, scribe.jobs[uid]) for uid, wish in world.former.items() if uid in scribe.jobs]
    for wish, job in former:
        wrong += [f"former {what}" for what in ledger.audit({wish.name: wish}, [job], pods, world.struck)]
    wrong += ledger.untold(world.wishes, jobs, events)
    for one in ledger.missed(world.wishes, jobs, world.struck, events):
        if not (one.told and one.faults):
            told, faults = ", ".join(one.told) or "nothing", ", ".join(one.faults) or "none"
            wrong.append(f"{one.job}: promise not kept, {one.late:.0f} s late; told: {told}; faults: {faults}")
    wrong += [f"{name} ended at {at:.1f}: {error!r}" for at, name, error in world.errors if not _may(world, error)]
    wrong += [f"a task failed: {found.get('exception')!r}" for found in world.loop.failures[:3]]
    wrong += [
        f"{line[1]} writes without the Lease: {line[2]} {line[3]} at {line[0]:.3f}" for line in world.trespasses[:3]
    ]
    wrong += [f"not at rest: {line[1]} {line[2]} {line[3]} at {line[0]:.1f}" for line in writes[:3]]
    return wrong


def _held(world):
    """Return the pods with another limit than their target rate says, or with one that nothing asks for."""
    if world.applications.lifted and not any(act.what == "recreate pool" for act in world.plan.acts):
        yield f"solver got all its CPU at {world.applications.lifted[0] - BEGIN:.1f}, and there was a TargetRate"
    rate = world.server.store.objects.get(f"{IN_SPACE}/targetrates/solver")
    for node in world.plan.nodes:
        for application in world.applications.on(node, BEGIN + world.loop.now).values():
            if rate is None:
                if application.limit is not None:
                    yield f"solver is held at {application.limit[0]} cores, and there is no TargetRate"
                continue
            status, wanted = rate.get("status") or {}, float(rate["spec"]["rate"].rstrip("%")) / 100
            got = application.limit[0] / ALONE if application.limit else 1.0
            if abs(got - wanted) > EPSILON:
                yield f"solver has {got:.0%} of its CPU, its target is {wanted:.0%}: {status}"


def _moved(world):
    """Return the moves of slices that nothing asked for: a takeover, or an agent that begins again, moves none."""
    asked = {}
    for move in world.applications.moves:
        before, asked[move.uid] = asked.get(move.uid), move.asked
        if before == move.asked and abs(move.by) > SMALL:
            yield f"the slices of {move.uid} moved by {1000 * move.by:.1f} ms at {move.at:.1f}, asked as before"


def _together(world):
    """Return how far apart the slices of an aligned application begin at the end, if that is too far."""
    rate = world.server.store.objects.get(f"{IN_SPACE}/targetrates/solver") or {}
    status, now = rate.get("status") or {}, BEGIN + world.loop.now
    if "offset" not in status:
        return
    period, phases = float(status["period"]), []
    for node in world.plan.nodes:
        phases += [app.phase for app in world.applications.on(node, now).values()]
    apart = max((abs(wrap(one - phases[0], period)) for one in phases), default=0.0)
    if apart > APART:
        yield f"the slices of solver begin {1000 * apart:.1f} ms apart: {status}"


def _unanswered(world):
    """Return the agents without an answer at the end: no leader is obeyed there."""
    for node, agent in world.agents.items():
        if world.loop.now - agent.answered > UNANSWERED:
            yield f"the agent of {node} has had no answer since {agent.answered:.0f}"


EPSILON = 0.05
"""How far the CPU of a held pod may be from its target."""
SMALL = 0.005
"""A move of slices by fewer seconds follows a clock that is known better, or drifts."""
APART = 0.01
"""Seconds by which the slices of two pods may begin apart: both agents may be wrong about the leader's clock."""
TAKEOVER = 40.0
"""Seconds after a restore in which the next leader begins."""
UNANSWERED = 10.0
"""Seconds without an answer, a minute after all faults are over."""
LATE = 2.0
"""Seconds after the start of a window within which the last pod must have ended."""
BEFORE = 60.0
"""Seconds before a window from which on a fault may keep a pod in it."""


def _too_many(world):
    """Return the moment at which more pods may run than the pool has processors, if there is one.

    A node that was away, or a foreign pod, takes processors from chunks that run there.
    """
    if any(struck.name in TAKING for struck in world.struck):
        return
    room, runs = sum(map(int, world.plan.nodes.values())), world.history.runs.values()
    runs = [run for run in runs if not run.guest]
    for one in runs:
        if world.restored is not None and world.restored <= one.begin - BEGIN < world.restored + TAKEOVER:
            continue  # pods that came back, and those of the next leader's first decisions
        there = [run.name for run in runs if run.begin <= one.begin < run.end]
        if len(there) > room:
            yield f"{len(there)} pods at {one.begin - BEGIN:.2f}, where {room} processors are: {', '.join(there)}"
            return


def _again(world):
    """Return the indexes of Jobs with two pods at a time, or with another one after it was done."""
    for one in world.history.runs.values():
        for run in world.history.runs.values():
            if one is run or one.index is None or (one.of, one.index) != (run.of, run.index):
                continue
            if one.begin <= run.begin < one.end and not one.leaves:
                yield f"index {one.index} runs twice: {one.name} and {run.name} at {run.begin - BEGIN:.2f}"
            elif one.well and one.end <= run.begin:
                yield f"index {one.index} is done by {one.name}, and runs again: {run.name}"


def _excuse(world):
    """Let Jobs have no DivisibleJob that had ended, or did at once, when theirs was deleted: no other is asked for."""
    names = {wish.name for wish in world.former.values() if wish.created is not None}
    for name in names & world.wishes.keys():
        job = world.server.store.objects.get(f"{BATCH_JOBS}/{name}") or {}
        if (job.get("status") or {}).get("conditions") and f"{JOBS}/{name}" not in world.server.store.objects:
            world.wishes[name].deleted = True


def _batches(world):
    """Return the Jobs that stand otherwise than their DivisibleJobs say, and pods that wait though nothing comes."""
    for path, job in world.server.store.objects.items():
        if not path.startswith(f"{BATCH_JOBS}/") or "deletionTimestamp" in job["metadata"]:
            continue
        name, notes = job["metadata"]["name"], job["metadata"].get("annotations") or {}
        seen = world.scribe.job(name)
        said, status = notes.get("punctual.dev/state"), (seen.status if seen and not seen.gone else {})
        if name in world.refused:
            if said != "Refused" or not job["spec"]["suspend"]:
                yield f"{name}: the Job must be refused, and is {said}: {job['spec']['suspend']}"
            continue
        if name not in world.wishes or world.wishes[name].deleted:
            continue
        if said != status.get("state"):
            yield f"{name}: the Job's annotation says {said}, its DivisibleJob is {status.get('state')}"
        ends = [one["type"] for one in (job.get("status") or {}).get("conditions") or () if one["status"] == "True"]
        wanted = {"Completed": ["Complete"], "Missed": ["Complete"], "Failed": ["Failed"]}.get(said, [])
        if ends != wanted:
            yield f"{name}: the DivisibleJob is {said}, and the Job {ends}: {job.get('status')}"
        if said == "Refused" and not job["spec"].get("suspend"):
            yield f"{name}: it is refused, and its Job is not suspended"


def _intruders(world):
    """Return the strangers that came to a node for what a pod of a Job has left of its processor."""
    for stranger in world.history.strangers.values():
        for stay in world.history.stays.values():
            if stay.node == stranger.node and stay.begin < stranger.begin < stay.end:
                yield f"{stranger.job} came to {stay.node} beside a small pod at {stranger.begin - BEGIN:.2f}"


def _kept(world):
    """Return the placeholders that nothing asks for at the end."""
    spec = world.plan.pool["spec"]
    for path, body in world.server.store.objects.items():
        if "/pods/" in path and PLACEHOLDER in (body["metadata"].get("labels") or {}):
            kept = body["metadata"]["annotations"][PROCESSOR]
            if spec.get("hold") != "Placeholder" or not kept.startswith(f"{spec['processor']['cpu']} "):
                yield f"a placeholder of {kept} is left on {body['spec'].get('nodeName')}"


def _crowded(world):
    """Return the windows in which processors that are reserved were not left empty, without a fault as the cause."""
    for window in world.history.windows.values():
        if any(
            fault.disturbs and fault.end > window.begin - BEFORE and fault.begin < window.end for fault in world.struck
        ):
            continue
        for node, reserved in window.nodes.items():
            most = _most(_others(world, window, node), window.begin + LATE, window.end)
            room = int(world.plan.nodes[node]) - reserved
            if most > room:
                yield f"{window.name}: {most} pods on {node} in the window, where {reserved} processors are reserved"


def _others(world, window, node):
    """Return the stays on a node of promised pods that the window is not for."""
    for stay in world.history.stays.values():
        job = world.scribe.jobs.get(stay.job)  # one that came and went between two lists was not seen
        spec = job.body["spec"] if job else {}
        if stay.node == node and spec.get("class") != "Guest" and spec.get("reservation") != window.name:
            yield stay


def _most(stays, begin, end):
    """Return how many of them overlap at most."""
    stays = [stay for stay in stays if stay.begin < end and stay.end > begin]
    moments = [begin, *(stay.begin for stay in stays if stay.begin > begin)]
    return max(sum(stay.begin <= at < stay.end for stay in stays) for at in moments)


def _may(world, error):
    """Return whether a replica may end so: by design, and by a cause that the plan has.

    Another one leads although this one's time is not over, which takes a Lease that was deleted. Or the store was
    brought back.
    """
    if world.restored is not None and _is_only(error, StoreFellBack):
        return True
    fenced_only = isinstance(error, BaseExceptionGroup) and error.split(Fenced)[1] is None
    return fenced_only and any(act.what == "delete lease" for act in world.plan.acts)


def _is_only(error, kind):
    return isinstance(error, kind) or (isinstance(error, BaseExceptionGroup) and error.split(kind)[1] is None)


def _events(world):
    found = {}
    for path, body in world.server.store.objects.items():
        if "/events.k8s.io/" in path:
            found.setdefault(body["regarding"].get("uid", ""), set()).add(body.get("reason", ""))
    return found
