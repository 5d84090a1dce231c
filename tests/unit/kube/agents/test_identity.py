"""Who a token is: what TokenReview says, remembered, bounded, asked once at a time."""

import asyncio

import pytest
from clocks import clock

from punctual.errors import Unreachable
from punctual.kube.agents.identity import NODE_NAME, Identity, Reviewer, identity_of

NOBODY = None
ME = Identity("system:serviceaccount:lab:agent", "n1")


def status(*, authenticated=True, audiences=("punctual-operator",), node=("n1",), **user):
    extra = {} if node is None else {NODE_NAME: list(node)}
    return {
        "authenticated": authenticated,
        "audiences": audiences and list(audiences),
        "user": {"username": ME.account, "extra": extra} | user,
    }


@pytest.mark.parametrize(
    ("answer", "identity"),
    [
        (status(), ME),
        (status(node=None), Identity(ME.account, None)),
        (status(extra=None), Identity(ME.account, None)),
        (status(node=()), Identity(ME.account, None)),
        (status(audiences=("a", "punctual-operator")), ME),
        (status(authenticated=False), NOBODY),
        (status(audiences=("https://kubernetes.default.svc",)), NOBODY),
        (status(audiences=None), NOBODY),
        ({}, NOBODY),
        ({"error": "expired"}, NOBODY),
    ],
)
def test_an_answer_is_read(answer, identity):
    assert identity_of(answer) == identity


class Stage:
    def __init__(self, **options):
        self.now, self.asked, self.gate, self.fail = 0.0, [], asyncio.Event(), False
        self.gate.set()
        self.reviewer = Reviewer(self.review, clock(lambda: self.now), **options)

    async def review(self, token):
        self.asked.append(token)
        await self.gate.wait()
        if self.fail:
            raise Unreachable("away")
        return ME if token.startswith("good") else None


async def test_good_ones_are_known_for_a_minute_bad_ones_for_ten_seconds():
    stage = Stage()
    for now in (0, 9.9, 10.1, 59.9, 60.1):
        stage.now = now
        assert await stage.reviewer.identify("good") == ME
        assert await stage.reviewer.identify("bad") is None
    assert stage.asked.count("good") == 2
    assert stage.asked.count("bad") == 3


async def test_the_memory_is_bounded_and_holds_no_token():
    stage = Stage(size=3)
    for i in range(10):
        await stage.reviewer.identify(f"good {i}")
    assert len(stage.reviewer) == 3
    assert "good" not in repr(stage.reviewer._known)
    await stage.reviewer.identify("good 9")
    assert len(stage.asked) == 10


async def test_many_that_ask_at_once_are_one_question():
    stage = Stage()
    stage.gate.clear()
    asking = [asyncio.create_task(stage.reviewer.identify("good")) for _ in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()  # hung up: the others must not suffer
    stage.gate.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [ME] * 4
    assert stage.asked == ["good"]


async def test_strangers_do_not_keep_the_api_server_busy():
    stage = Stage(at_once=2)
    stage.gate.clear()
    asking = [asyncio.create_task(stage.reviewer.identify(f"bad {i}")) for i in range(6)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(stage.asked) == 2
    stage.gate.set()
    assert await asyncio.gather(*asking) == [None] * 6


async def test_no_answer_is_not_remembered():
    stage = Stage()
    stage.fail = True
    with pytest.raises(Unreachable):
        await stage.reviewer.identify("good")
    stage.fail = False
    assert await stage.reviewer.identify("good") == ME
