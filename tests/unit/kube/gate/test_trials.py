"""Pods created on trial: few at once, namespaces in turn, what fails again."""

import asyncio
from collections import Counter

import pytest
from clocks import clock

from punctual import errors, reasons
from punctual.kube.gate import trials
from punctual.kube.gate.trials import AT_ONCE, EACH, MOST, Trials
from punctual.scheduling.model.pool_spec import PoolSpec


class Server:
    """Holds each create until it is let go."""

    def __init__(self):
        self.gives = "Burstable"
        self.under_way = Counter()
        self.most = 0
        self.order = []
        self.gate = asyncio.Event()
        self.slow = set()
        """Namespaces whose creates never come back."""
        self.errors = []

    async def create(self, path, body, **_):
        namespace = path.split("/")[4]
        self.order.append(namespace)
        self.under_way[namespace] += 1
        self.most = max(self.most, self.under_way.total())
        try:
            await self.gate.wait()
            if namespace in self.slow:
                await asyncio.Event().wait()
            if self.errors:
                raise self.errors.pop(0)
            return {"spec": {}, **body, "status": {"qosClass": self.gives}}
        finally:
            self.under_way[namespace] -= 1


class Desk:
    def __init__(self):
        self.server = Server()
        self.server.clock = clock(lambda: 0.0)
        self.answered = []
        self.made = 0
        self.kind = "Chunk"
        self.trials = Trials(self.server, self.answered.append)

    def ask(self, namespace, count, *, first=0):
        for n in range(first, first + count):
            self.trials.ask(f"{namespace}/{n}".encode(), namespace, self._pod, PoolSpec(name="main", cpu=1.0))

    def _pod(self, others):
        self.made += 1
        return {
            "metadata": {"labels": {"punctual.dev/kind": self.kind}},
            "spec": {"containers": [{"name": "main", "image": "img"}]},
        }

    async def until(self, holds):
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110  the server's state
                await asyncio.sleep(0)


@pytest.fixture
async def desk(monkeypatch):
    monkeypatch.setattr(trials, "FIRST_RETRY", 0.0)
    made = Desk()
    yield made
    await made.trials.close()


async def test_few_are_under_way_at_once_and_the_others_are_not_even_made(desk):
    for namespace in ("a", "b", "c"):
        desk.ask(namespace, 2000)
    await desk.until(lambda: desk.server.under_way.total() == AT_ONCE)
    assert desk.made == AT_ONCE
    desk.server.gate.set()
    await desk.until(lambda: len(desk.answered) == 6000)
    assert desk.server.most == AT_ONCE
    assert len(desk.trials._answers) == MOST, "what is kept is bounded"


async def test_one_namespace_leaves_room_to_another_and_takes_turns_with_it(desk):
    desk.ask("crowd", 1000)
    await desk.until(lambda: desk.server.under_way["crowd"] == EACH)
    desk.ask("other", 3)
    await desk.until(lambda: desk.server.under_way["other"] == 3)
    assert desk.server.under_way["crowd"] == EACH


async def test_a_namespace_whose_webhook_never_answers_keeps_no_other_waiting(desk):
    desk.server.slow.add("stuck")
    desk.ask("stuck", 100)
    desk.ask("other", 100)
    desk.server.gate.set()
    await desk.until(lambda: len(desk.answered) == 100)
    assert all(key.startswith(b"other/") for key in desk.answered)
    assert desk.server.order.count("stuck") == EACH


async def test_what_fails_is_tried_again_behind_what_waits(desk):
    desk.server.gate.set()
    desk.server.errors = [errors.Busy("webhook says 500", retry_after=0.0)]
    desk.ask("a", 1)
    await desk.until(lambda: desk.trials.trouble(b"a/0").endswith("webhook says 500"))
    await desk.until(lambda: desk.answered == [b"a/0"])
    assert desk.trials.answer(b"a/0", since=0.0).refusal is None
    assert "wait for a dry run" in desk.trials.trouble(b"a/1")


@pytest.mark.parametrize(("kind", "gives", "refused"), [
    ("Guest", "BestEffort", False),
    ("Guest", "Burstable", True),
    ("Chunk", "Burstable", False),
])  # fmt: skip
async def test_a_guest_that_would_be_given_requests_is_refused(desk, kind, gives, refused):
    desk.server.gate.set()
    desk.kind, desk.server.gives = kind, gives
    desk.ask("a", 1)
    await desk.until(lambda: desk.answered == [b"a/0"])
    refusal = desk.trials.answer(b"a/0", since=0.0).refusal
    assert (refusal is not None) == refused
    if refusal:
        assert refusal[0] == "PodRefused"
        assert "Burstable, but guests must be BestEffort" in refusal[1]
        assert "LimitRange" in refusal[1]


async def test_what_is_refused_for_good_is_asked_once(desk):
    desk.server.gate.set()
    desk.server.errors = [errors.Forbidden("exceeded quota")]
    desk.ask("a", 1)
    await desk.until(lambda: desk.answered)
    assert desk.trials.answer(b"a/0", since=0.0).refusal == (
        reasons.POD_REFUSED,
        "its pods would be refused: exceeded quota",
    )
    assert desk.server.order == ["a"]
