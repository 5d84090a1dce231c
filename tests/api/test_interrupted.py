"""The operator is killed before, after and behind any write of a job's life: another one ends it in the same state."""

import asyncio
import os
import time
from dataclasses import dataclass

import pytest
from faults import afterwards, lose, refuse
from life import life, told
from ports import kept_port
from proxy import WRITES

from punctual.kube.api.resources import JOBS

EVERY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
"""Kill at every write: 3 n lives and more. Else in each way at each kind of write there is."""
AT_ONCE = 8
"""Lives beside each other: most of each is waiting."""
MODES = {"before": refuse, "after": afterwards, "unanswered": lose}
BESIDE = {"leases", "events", "tokenreviews"}
"""Written beside the life of a job."""
TAKEOVER = 8
"""Writes within which a new operator has taken over, and is killed too."""


@dataclass(frozen=True)
class Strike:
    """Where an operator is killed: at the nth write of a kind ("" for any)."""

    kind: str
    nth: int
    mode: str

    def __str__(self):
        return f"{self.mode} {self.kind or 'any write'} #{self.nth}"

    def add(self, proxy, kill):
        """Make it so; return the rule."""
        return proxy.on("write", "", MODES[self.mode](kill), nth=self.nth, where=self._fits)

    def _fits(self, call):
        return call.resource not in BESIDE and self.kind in ("", call.kind)


def writes(calls):
    """Return the writes among calls as (kind, which of its kind), in order."""
    counts, found = {}, []
    for call in calls:
        if call.verb in WRITES and call.resource not in BESIDE:
            counts[call.kind] = counts.get(call.kind, 0) + 1
            found.append((call.kind, counts[call.kind]))
    return found


async def undisturbed(client, kubeconfig, folder):
    """Live once; return the writes that were made."""
    async with life(client, kubeconfig, folder) as (stage, proxy, start):
        start()
        await stage.finished()
        await stage.judge()
        return writes(proxy.calls)


async def killed(client, kubeconfig, folder, *strikes):
    """Live while one operator after the other is killed; return whether it came to all of that."""
    async with life(client, kubeconfig, folder) as (stage, proxy, start):
        done = asyncio.ensure_future(stage.finished())
        met = [await struck(strike, stage, proxy, start, done) for strike in strikes]
        proxy.forgive()
        if met[-1]:
            start()
        await done
        await stage.judge()
        return all(met)


async def struck(strike, stage, proxy, start, done):
    """Start an operator and kill it; return whether it came to that before all was done."""
    proxy.forgive()
    rule = strike.add(proxy, lambda: one.kill())  # noqa: PLW0108  which begins only now
    one = start()
    met = asyncio.ensure_future(rule.met.wait())
    await asyncio.wait((met, done), return_when=asyncio.FIRST_COMPLETED)
    if met.cancel():
        return False
    assert await one.ended() == -9
    await stage.let_go()
    return True


def chosen(made):
    """Return the strikes of each life: at each kind of write in each mode, at the others in one."""
    first = [(Strike(kind, 1, mode),) for kind, nth in made for mode in MODES if nth == 1]
    others = [(kind, nth) for kind, nth in made if nth > 1]
    if not EVERY:
        return [*first, *((Strike(kind, nth, "unanswered"),) for kind, nth in others if "divisiblejobs" in kind)]
    begun = Strike("create pods", 1, "after")
    again = [(begun, Strike("", nth, mode)) for nth in range(1, TAKEOVER) for mode in MODES]
    return [*first, *((Strike(kind, nth, mode),) for kind, nth in others for mode in MODES), *again]


@pytest.mark.timeout(1800 if EVERY else 400, func_only=True)
async def test_killed_at_any_write_another_operator_ends_it_in_the_same_state(client, kubeconfig, tmp_path):
    made = await undisturbed(client, kubeconfig, tmp_path)
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(strikes):
        async with slots:
            return await killed(client, kubeconfig, tmp_path, *strikes)

    lives = {" and ".join(map(str, strikes)): one(strikes) for strikes in chosen(made)}
    found = dict(zip(lives, await asyncio.gather(*lives.values(), return_exceptions=True), strict=True))
    failed = {name: result for name, result in found.items() if isinstance(result, BaseException)}
    assert not failed, told(failed)
    missed = [name for name, struck in found.items() if not struck]
    # each kind of write is met in each way; how many statuses are written depends on the machine's mood
    assert all("pools/status" in name or ("jobs/status" in name and not name.endswith("#1")) for name in missed), missed


LEASE = 6.0
"""Seconds of the lease of replicas that lead again."""
SHORT = {"PUNCTUAL_LEASE_LEASE": str(LEASE), "PUNCTUAL_LEASE_RENEW": "4", "PUNCTUAL_LEASE_RETRY": "0.5"}


async def returned(client, kubeconfig, folder, strike):
    """Freeze an operator, let another end the job, and kill that; return whether it came to that.

    The first leads again, decides about another job, and leaves the one that has ended as it is.
    """
    async with life(client, kubeconfig, folder) as (stage, proxy, start):
        done = asyncio.ensure_future(stage.finished())
        rule = strike.add(proxy, lambda: first.freeze())  # noqa: PLW0108  which begins only now
        first, there = start(**SHORT), stage.port
        met = asyncio.ensure_future(rule.met.wait())
        await asyncio.wait((met, done), return_when=asyncio.FIRST_COMPLETED)
        if met.cancel():
            return False
        frozen = time.monotonic()
        proxy.forgive()
        with kept_port() as stage.port:
            await stage.let_go()
            second = start(**SHORT)
            await done
            await stage.until(lambda: time.monotonic() - frozen > LEASE)
            second.kill()
            await second.ended()
        stage.port = there
        ended, pods = stage.status, dict(stage.pods)
        await stage.let_go()
        first.go_on()
        await stage.add_job("later", deadline="1s")
        await stage.until(lambda: stage.answered("later", "InfeasibleStartup"))
        assert first.status is None, "it has ended, and did not lead again"
        assert stage.status == ended
        assert stage.pods.keys() == pods.keys()
        await stage.judge()
        return True


@pytest.mark.timeout(1800 if EVERY else 400, func_only=True)
async def test_an_operator_that_is_frozen_at_any_write_and_leads_again_undoes_nothing(client, kubeconfig, tmp_path):
    made = await undisturbed(client, kubeconfig, tmp_path)
    slots = asyncio.Semaphore(AT_ONCE)
    strikes = [Strike(kind, nth, mode) for kind, nth in made for mode in MODES]
    chosen = strikes if EVERY else [one for one in strikes if (one.nth, one.mode) == (1, "unanswered")]

    async def one(strike):
        async with slots:
            return await returned(client, kubeconfig, tmp_path, strike)

    found = await asyncio.gather(*map(one, chosen), return_exceptions=True)
    failed = {str(strike): error for strike, error in zip(chosen, found, strict=True) if not isinstance(error, bool)}
    assert not failed, told(failed)
    assert any(found)


ASKED_AGAIN = [
    Strike(kind, 1, mode)
    for kind in ("patch divisiblejobs/status merge", "update divisiblejobs/status", "create pods")
    for mode in MODES
]
"""A refused job is not stamped by a takeover: so that is where its stamp, its answer and its first pod come."""


async def test_killed_at_any_write_about_a_refused_job_that_is_asked_again_another_operator_promises_it(
    client, kubeconfig, tmp_path
):
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(strike):
        async with slots, life(client, kubeconfig, tmp_path, plays=False, job=False) as (stage, proxy, start):
            path = JOBS.path(namespace=stage.namespace, name="job")
            first = start()
            await stage.until(lambda: stage.queue(0))
            await stage.add_job(deadline="1s")
            await stage.until(lambda: stage.answered("job", "InfeasibleStartup"))
            first.kill()
            await first.ended()
            await stage.let_go()
            rule = strike.add(proxy, lambda: second.kill())  # noqa: PLW0108  which begins only now
            second = start()
            await stage.until(lambda: second.log.read_text().count('"term_begun"') == 2)
            assert not rule.met.is_set(), "the takeover wrote about it"
            await client.patch_merge(path, {"spec": {"deadline": "20m"}})
            assert await second.ended() == -9
            await stage.let_go()
            proxy.forgive()
            start()

            async def works():
                pods = await stage.chunks()  # first: a status that is older than the pods would be an earlier leader's
                status = (await client.get(path))["status"]
                recorded = {chunk["pod"] for chunk in status.get("chunks", ())}
                return len(recorded) == 2 and recorded == {pod["metadata"]["name"] for pod in pods} and status

            status = await stage.until(works)
            assert status["promise"]["deadline"] == status["applied"]["deadlineTime"]
            assert status["epoch"] == 3
            assert [(c["begin"], c["end"], c["attempt"]) for c in status["chunks"]] == [(0, 20, 1), (20, 40, 1)]

    found = await asyncio.gather(*map(one, ASKED_AGAIN), return_exceptions=True)
    failed = {str(strike): error for strike, error in zip(ASKED_AGAIN, found, strict=True) if error}
    assert not failed, told(failed)
