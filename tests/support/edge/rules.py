"""What must hold over the history of a play."""

from chaos_lib import ledger

from punctual.errors import Fenced


def broken(world, writes):
    """Return what is wrong, as sentences."""
    scribe = world.scribe
    pods, events = [pod for pod in scribe.pods.values() if pod.job], _events(world)
    jobs = [job for uid, job in scribe.jobs.items() if uid not in world.former]
    wrong = ledger.audit(world.wishes, jobs, pods, world.struck)
    wrong += world.history.wrong
    for uid, wish in world.former.items():
        wrong += [f"former {what}" for what in ledger.audit({wish.name: wish}, [scribe.jobs[uid]], pods, world.struck)]
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


def _may(world, error):
    """Return whether a replica may end so: another one leads although this one's time is not over.

    That takes a Lease that was deleted. The process ends then, by design.
    """
    fenced_only = isinstance(error, BaseExceptionGroup) and error.split(Fenced)[1] is None
    return fenced_only and any(act.what == "delete lease" for act in world.plan.acts)


def _events(world):
    found = {}
    for path, body in world.server.store.objects.items():
        if "/events.k8s.io/" in path:
            found.setdefault(body["regarding"].get("uid", ""), set()).add(body.get("reason", ""))
    return found
