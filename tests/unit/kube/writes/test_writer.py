"""The writer's order, rates and repetitions, under a clock that jumps and a client that answers by script.

`Server` notes each request and does what a rule says: by default all goes well after 10 ms. The same writer meets a
real API server in tests/api.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from clocks import clock

from punctual import errors
from punctual.kube.cluster.client import RIGHTS, Json
from punctual.kube.writes.operations import (
    Annotate,
    ApplyConfigMap,
    CreateObject,
    CreatePod,
    DeleteObject,
    DeletePod,
    LimitPod,
    Outcome,
    Patch,
    PutStatus,
    StartPod,
    perform,
    same,
)
from punctual.kube.writes.writer import Writer
from punctual.scheduling.model.job import Chunk

pytestmark = pytest.mark.looptime
LABELS = ("punctual.dev/job", "punctual.dev/begin", "punctual.dev/attempt")


def status(job: str, done: int, *, urgent: bool = True, slow: bool = False) -> PutStatus:
    body = {"apiVersion": "punctual.dev/v1alpha1", "kind": "DivisibleJob", "status": {"done": done}}
    # no uid: how the object is told from one of the same name is tested on a real API server
    return PutStatus(f"/{job}", body | {"metadata": {"name": job}}, urgent, slow=slow)


def pod_body(name: str, *, job: str = "j", begin: int = 0, attempt: int = 0) -> Json:
    labels = dict(zip(LABELS, (job, str(begin), str(attempt)), strict=True))
    return {"metadata": {"name": name, "labels": labels}}


def create(name: str, **kwargs) -> CreatePod:
    body = pod_body(name, **kwargs)
    return CreatePod("ns", body, same(body, labels=LABELS))


def start(pod: str) -> StartPod:
    chunk = Chunk(begin=0, end=1, origin=1, node="n", attempt=0, created=0.0, promised_end=1.0)
    return StartPod(f"/{pod}", {"metadata": {"uid": pod}}, chunk)


def make(name: str, owner: str = "b1") -> CreateObject:
    owners = {"ownerReferences": [{"uid": owner}]} if owner else {}
    return CreateObject("/jobs", {"metadata": {"name": name, **owners}})


class Server:
    """``rules`` are asked in turn for each request: one may raise, or return an answer other than None."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.at: list[float] = []
        self.rules: list[Callable[[str], Json | None]] = []
        self.took = 0.01
        self.hangs = "nothing"
        """Requests that begin with this are never answered."""
        self.deadlines: dict[str, float | None] = {}
        """Of writes of statuses, in seconds, by path; None: the client's own."""
        self.under_way = self.most = 0

    async def _request(self, what: str) -> Json:
        self.log.append(what)
        self.at.append(asyncio.get_running_loop().time())
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(self.took)
            if what.startswith(self.hangs):
                await asyncio.Event().wait()
            for rule in self.rules:
                if (answer := rule(what)) is not None:
                    return answer
        finally:
            self.under_way -= 1
        return {}

    async def put_status(self, path, body, *, field_manager, deadline) -> Json:
        self.deadlines[path] = deadline
        return await self._request(f"put {path} {body['status']['done']}")

    async def apply(self, path, body, *, field_manager) -> Json:
        return await self._request(f"apply {path} {body['data']}")

    async def create(self, path, body, *, field_manager) -> Json:
        return await self._request(f"create {body['metadata']['name']}")

    async def metadata(self, path) -> Json:
        return (await self._request(f"metadata {path.rsplit('/', 1)[1]}"))["metadata"]

    async def get(self, path) -> Json:
        return await self._request(f"get {path.rsplit('/', 1)[1]}")

    async def delete(self, path, *, uid="", grace=None, propagation="") -> Json:
        return await self._request(f"delete {path.rsplit('/', 1)[1]}")

    async def patch_merge(self, path, body, *, field_manager, subresource="") -> Json:
        return await self._request(f"merge {path} {body}")

    async def patch_json(self, path, operations, *, field_manager, subresource="") -> Json:
        return await self._request(f"json {path}")

    def fail(self, what: str, error: Exception, *, times: int = 10**9) -> None:
        """Requests that begin with ``what`` fail, so many times."""

        def rule(asked: str) -> None:
            nonlocal times
            if asked.startswith(what) and times > 0:
                times -= 1
                raise error

        self.rules.append(rule)

    def answer(self, what: str, body: Json) -> None:
        self.rules.append(lambda asked: body if asked.startswith(what) else None)


class Term:
    """A writer that runs, and all it said."""

    def __init__(self, **settings) -> None:
        self.server = Server()
        self.outcomes: list[Outcome] = []
        self.ends = 0
        self.metrics: list[tuple[str, str]] = []
        self.leads = True
        self.server.clock = clock(asyncio.get_running_loop().time)
        self.finished = self.outcomes.append
        self.writer = Writer(self.server, self, **settings)
        self.task = asyncio.create_task(self.writer.run())

    def leading(self) -> bool:
        return self.leads

    def fenced(self) -> None:
        self.ends += 1

    def count_write(self, kind: str, result: str, seconds: float) -> None:
        self.metrics.append((kind, result))

    @property
    def results(self) -> list[str]:
        return [outcome.result for outcome in self.outcomes]

    def expected(self, key: str) -> set[str]:
        """Return the pods of a key that the writer waits to see."""
        return set(self.writer._expected.pods_of(key))

    async def settle(self, within: float = 60) -> None:
        async with asyncio.timeout(within):
            await self.writer._queues.idle.wait()


@pytest.fixture
async def terms():
    made: list[Term] = []

    def begin(**settings) -> Term:
        made.append(Term(**settings))
        return made[-1]

    yield begin
    for term in made:
        term.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await term.task


async def test_one_key_is_written_strictly_in_order(terms):
    term = terms()
    for operation in (status("j", 1), create("p1"), create("p2"), status("j", 2), DeletePod("ns", "p0", "u")):
        term.writer.submit("j", operation)
    await term.settle()
    assert term.server.log == ["put /j 1", "create p1", "create p2", "put /j 2", "delete p0"]
    assert term.server.most == 1


async def test_different_keys_are_written_at_the_same_time_up_to_a_limit(terms):
    term = terms()
    for n in range(100):
        term.writer.submit(f"j{n}", status(f"j{n}", 1))
    await term.settle()
    assert len(term.server.log) == 100
    assert term.server.most == 32


async def test_a_newer_status_replaces_one_that_waits_directly_before_it(terms):
    term = terms()
    for done in (1, 2, 3):
        term.writer.submit("j", status("j", done))
    assert term.writer.depth == 1
    await term.settle()
    assert term.server.log == ["put /j 3"]


async def test_a_newer_status_never_overtakes_the_create_that_an_older_one_announced(terms):
    term = terms()
    for operation in (status("j", 1), create("p1"), status("j", 2), status("j", 3)):
        term.writer.submit("j", operation)
    await term.settle()
    assert term.server.log == ["put /j 1", "create p1", "put /j 3"]


async def test_a_status_that_is_being_written_is_not_replaced(terms):
    term = terms()
    term.writer.submit("j", status("j", 1))
    await asyncio.sleep(0.005)
    term.writer.submit("j", status("j", 2))
    term.writer.submit("j", status("j", 3))
    await term.settle()
    assert term.server.log == ["put /j 1", "put /j 3"]


async def test_a_status_that_says_what_stands_there_is_not_written(terms):
    term = terms()
    term.writer.submit("j", status("j", 1))
    await term.settle()
    term.writer.submit("j", status("j", 1))
    term.writer.submit("k", status("k", 1))
    await term.settle()
    assert term.server.log == ["put /j 1", "put /k 1"]
    assert term.results == ["done"] * 3


async def test_a_status_whose_predecessor_may_or_may_not_stand_there_is_written(terms):
    term = terms()
    term.writer.submit("j", status("j", 1))
    await term.settle()
    term.server.fail("put /j 2", errors.Unreachable("the answer got lost", retry_after=0.2))
    term.writer.submit("j", status("j", 2))
    await asyncio.sleep(0.05)
    term.writer.submit("j", status("j", 1))
    await term.settle()
    assert term.server.log == ["put /j 1", "put /j 2", "put /j 1"]


async def test_what_fails_is_tried_again_with_growing_pauses_and_holds_up_its_own_key_only(terms):
    term = terms()
    term.server.fail("put /j", errors.Busy("500", retry_after=0.2), times=7)
    term.writer.submit("j", status("j", 1))
    term.writer.submit("j", create("p1"))
    term.writer.submit("k", status("k", 1))
    await term.settle()
    assert term.server.log == ["put /j 1", "put /k 1", *["put /j 1"] * 7, "create p1"]
    tries = [at for at, what in zip(term.server.at, term.server.log, strict=True) if what == "put /j 1"]
    pauses = [b - a - 0.01 for a, b in pairwise(tries)]
    for pause, least in zip(pauses, (0.2, 0.4, 0.8, 1.6, 3.2, 5, 5), strict=True):
        assert least <= pause <= 1.25 * least + 0.01
    assert term.metrics.count(("PutStatus", "busy")) == 7


async def test_a_status_whose_answer_was_lost_is_looked_at_before_it_is_written_again(terms):
    term = terms()
    term.server.fail("put", errors.Unreachable("the answer got lost"), times=1)
    term.server.answer("metadata", {"metadata": {"uid": "u", "resourceVersion": "8"}})
    write = status("j", 1)
    body = write.body | {"metadata": {"name": "j", "uid": "u"}}
    term.writer.submit("j", replace(write, body=body, version="7"))
    await term.settle()
    assert term.server.log == ["put /j 1", "metadata j", "put /j 1"]


async def test_the_server_says_when_to_come_back(terms):
    term = terms()
    term.server.fail("put", errors.Busy("429", retry_after=30), times=1)
    term.writer.submit("j", status("j", 1))
    await term.settle()
    assert 30 <= term.server.at[1] - term.server.at[0] <= 38


@pytest.mark.parametrize(
    ("error", "operation"),
    [
        (errors.Forbidden("rbac, for a while"), status("j", 1)),
        (errors.NoRight("rbac, not read yet"), create("p1")),
        (errors.NoRight("rbac, not read yet"), ApplyConfigMap("/c", {"metadata": {}, "data": 1})),
        (errors.NoRight("rbac, not read yet"), Patch("/c", {}, refusable=True)),
        (errors.Forbidden("a policy, for a while"), Patch("/n", [])),
        (errors.Unauthorized("token"), status("j", 1)),
        (errors.Conflict("the object has been modified"), status("j", 1)),
        (errors.Conflict('pods "guide": the object has been modified'), Annotate("/guide", {"a": "1"}, "u")),
        (errors.Conflict("Operation cannot be fulfilled on resourcequotas"), create("p1")),
        (errors.Unreachable("cut off"), DeletePod("ns", "p1", "u")),
    ],
)
async def test_what_may_get_better_by_itself_is_tried_again(terms, error, operation):
    term = terms()
    term.server.fail("", error, times=3)
    term.writer.submit("j", operation)
    await term.settle()
    assert term.results == ["done"]
    assert len(term.server.log) == 4


@pytest.mark.parametrize(
    ("error", "operation", "result"),
    [
        (errors.Forbidden("exceeded quota"), create("p1"), "refused"),
        (errors.Invalid("spec.containers: Required"), create("p1"), "refused"),
        (errors.NotFound('namespaces "ns" not found'), create("p1"), "refused"),
        (errors.Invalid("status.x: unknown"), status("j", 1), "refused"),
        (errors.NotFound("job"), status("j", 1), "gone"),
        (errors.NotFound("pod"), DeletePod("ns", "p1", "u"), "gone"),
        (errors.Replaced("the UID in the precondition does not match"), DeletePod("ns", "p1", "u"), "gone"),
        (errors.NotFound("job"), DeleteObject("/j", "u"), "gone"),
        (errors.NotFound("pod"), Annotate("/p1", {"a": "1"}), "gone"),
        (errors.Replaced("metadata.uid: field is immutable"), Annotate("/p1", {"a": "1"}, "u"), "gone"),
        (errors.Replaced("metadata.uid: field is immutable"), LimitPod("/p1", "u"), "gone"),
        (errors.NotFound("node"), Patch("/n", {}), "gone"),
        (errors.Invalid("test failed"), Patch("/n", []), "refused"),
        (errors.Forbidden("exceeded quota"), ApplyConfigMap("/c", {"metadata": {}, "data": 1}), "refused"),
        (errors.Forbidden("a policy"), Patch("/c", {}, refusable=True), "refused"),
        (errors.Invalid("too large"), ApplyConfigMap("/c", {"metadata": {}, "data": 1}), "refused"),
    ],
)
async def test_what_will_never_be_is_told_once_and_the_next_one_goes_on(terms, error, operation, result):
    term = terms()
    term.server.fail("", error, times=1)
    term.writer.submit("j", operation)
    term.writer.submit("j", DeletePod("ns", "next", "u"))
    await term.settle()
    assert [(o.key, o.operation, o.result, o.message) for o in term.outcomes][:1] == [
        ("j", operation, result, str(error))
    ]
    assert term.results[1:] == ["done"]
    assert len(term.server.log) == 2


async def test_a_pod_that_no_right_is_there_for_is_told_of_before_long(terms):
    term = terms()
    term.server.fail("create", errors.NoRight('User "punctual" cannot create pods'))
    term.writer.submit("j", create("p1"))
    await term.settle()
    assert term.results == ["refused"]
    assert len(term.server.log) == RIGHTS


async def test_no_pod_is_created_whose_record_was_refused(terms):
    term = terms()
    term.server.fail("put /j 1", errors.Invalid("status.chunks: Too many"), times=1)
    for operation in (
        status("j", 1),
        create("one"),
        DeletePod("ns", "old", "u"),
        create("two"),
        status("j", 2),
        create("three"),
    ):
        term.writer.submit("j", operation)
    term.writer.submit("k", create("other"))
    await term.settle()
    of_j = [what for what in term.server.log if what != "create other"]
    assert of_j == ["put /j 1", "delete old", "put /j 2", "create three"]
    refused = [o.operation for o in term.outcomes if o.result == "refused" and isinstance(o.operation, CreatePod)]
    assert [o.body["metadata"]["name"] for o in refused] == ["one", "two"]
    assert term.expected("j") == {"ns/three"}
    assert term.writer.depth == 0


async def test_a_create_whose_answer_was_lost_finds_its_own_pod(terms):
    term = terms()
    term.server.fail("create", errors.Unreachable("the answer got lost"), times=1)
    term.server.fail("create", errors.AlreadyExists("there"))
    term.server.answer("get", pod_body("p1"))
    term.writer.submit("j", create("p1"))
    await term.settle()
    assert term.server.log == ["create p1", "create p1", "get p1"]
    assert term.results == ["done"]
    assert term.expected("j") == {"ns/p1"}


@pytest.mark.parametrize(
    "there",
    [
        pod_body("p1", job="another"),
        pod_body("p1", begin=7),
        pod_body("p1", attempt=2),
        {"metadata": {"name": "p1"}},
        {"metadata": pod_body("p1")["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
)
async def test_a_pod_of_the_same_name_that_is_not_ours_to_count_is_a_conflict(terms, there):
    term = terms()
    term.server.fail("create", errors.AlreadyExists("there"))
    term.server.answer("get", there)
    term.writer.submit("j", create("p1"))
    await term.settle()
    assert term.results == ["conflict"]
    assert term.expected("j") == frozenset()


async def test_a_pod_that_vanishes_between_create_and_get_is_created_again(terms):
    term = terms()
    term.server.fail("create", errors.AlreadyExists("there"), times=1)
    term.server.fail("get", errors.NotFound("gone"))
    term.writer.submit("j", create("p1"))
    await term.settle()
    assert term.server.log == ["create p1", "get p1", "create p1"]
    assert term.results == ["done"]


async def test_pods_are_expected_until_they_are_seen(terms):
    term = terms()
    term.server.fail("create p2", errors.Forbidden("quota"))
    for name in ("p1", "p2", "p3"):
        term.writer.submit("j", create(name))
    assert term.expected("j") == {"ns/p1", "ns/p2", "ns/p3"}
    term.writer.observed("ns/p1")
    await term.settle()
    assert term.expected("j") == {"ns/p3"}
    term.writer.submit("j", DeletePod("ns", "p3", "u"))
    term.writer.observed("ns/stranger")
    await term.settle()
    assert term.expected("j") == frozenset()


async def test_a_fenced_status_ends_the_term_once(terms):
    term = terms()
    term.server.fail("put /j5", errors.Fenced("epoch must not fall"))
    for n in range(200):
        term.writer.submit(f"j{n}", status(f"j{n}", 1))
        term.writer.submit(f"j{n}", create(f"p{n}"))
    async with asyncio.timeout(5):
        await term.task
    assert term.ends == 1
    assert term.writer.depth == 0
    assert len(term.server.log) < 100
    asked = len(term.server.log)
    term.writer.submit("j1", status("j1", 2))
    await asyncio.sleep(5)
    assert len(term.server.log) == asked
    assert term.writer.depth == 0


async def test_a_leader_whose_time_ran_out_writes_nothing_even_before_it_hears_of_it(terms):
    term = terms()
    term.writer.submit("j", status("j", 1))
    await term.settle()
    term.leads = False
    term.writer.submit("j", status("j", 2))
    async with asyncio.timeout(5):
        await term.task
    assert term.server.log == ["put /j 1"]
    assert term.ends == 1


async def test_progress_waits_behind_decisions_and_keeps_to_its_budget(terms):
    term = terms(progress_rate=10.0, rate=100.0)
    for n in range(100):
        term.writer.submit(f"p{n}", status(f"p{n}", 1, urgent=False))
    for n in range(50):
        term.writer.submit(f"d{n}", status(f"d{n}", 1))
    await term.settle()
    assert all(what.startswith("put /d") for what in term.server.log[:50])
    took = term.server.at[-1] - term.server.at[50]
    assert 9.5 <= took <= 10.5


async def test_what_a_job_is_told_waits_behind_decisions_and_before_progress(terms):
    term = terms(rate=1e6)
    for n in range(40):
        term.writer.submit(f"p{n}", status(f"p{n}", 1, urgent=False))
        term.writer.submit(f"told{n}", Annotate(f"/told{n}", {"a": "b"}, urgent=False))
        term.writer.submit(f"d{n}", status(f"d{n}", 1))
    term.writer.submit("both", Annotate("/both", {"a": "b"}, urgent=False))
    term.writer.submit("both", create("both"))
    await term.settle()
    kinds = [what.split("/")[-1].split()[0].rstrip("0123456789") for what in term.server.log if "both" not in what]
    assert (kinds[:40], set(kinds[40:80]), set(kinds[80:])) == (["d"] * 40, {"told"}, {"p"})
    assert "told39" not in "".join(term.server.log[: term.server.log.index("create both")]), "a create does not wait"


async def test_progress_of_one_object_is_written_every_few_seconds_and_the_newest_of_it(terms):
    term = terms()
    for second in range(20):
        term.writer.submit("j", status("j", second, urgent=False))
        await asyncio.sleep(1)
    await term.settle()
    assert term.server.log == ["put /j 0", "put /j 5", "put /j 10", "put /j 15", "put /j 19"]


async def test_a_decision_does_not_wait_for_the_progress_of_its_object(terms):
    term = terms()
    term.writer.submit("j", status("j", 0, urgent=False))
    await term.settle()
    term.writer.submit("j", status("j", 1, urgent=False))
    await asyncio.sleep(0.1)
    began = asyncio.get_running_loop().time()
    term.writer.submit("j", status("j", 2))
    term.writer.submit("j", create("p1"))
    await term.settle()
    assert term.server.log == ["put /j 0", "put /j 2", "create p1"]
    assert term.server.at[-1] - began < 0.1


async def test_forty_writes_about_oversized_objects_that_never_return_keep_no_other_waiting(terms):
    term = terms()
    term.server.hangs = "put /big"
    for n in range(40):
        term.writer.submit(f"big{n}", status(f"big{n}", 1, slow=True))
    await asyncio.sleep(1)
    assert term.server.under_way == 1
    term.writer.submit("small", status("small", 1))
    await asyncio.sleep(0.02)
    assert term.results == ["done"]
    assert term.server.deadlines == {"/big0": 30.0, "/small": None}


async def test_oversized_objects_are_written_one_by_one_behind_decisions_and_before_progress(terms):
    term = terms(rate=1e6, progress_rate=0.01)
    term.server.took = 1.0
    for n in range(40):
        term.writer.submit(f"big{n}", status(f"big{n}", 1, slow=True))
        term.writer.submit(f"urgent{n}", status(f"urgent{n}", 1))
        term.writer.submit(f"progress{n}", status(f"progress{n}", 1, urgent=False))
    await asyncio.sleep(45)
    assert all(what.startswith("put /urgent") for what in term.server.log[:40])
    assert sum(what.startswith("put /big") for what in term.server.log) == 40
    times = [at for what, at in zip(term.server.log, term.server.at, strict=True) if what.startswith("put /big")]
    assert all(later >= earlier + 1 for earlier, later in pairwise(times))


async def test_an_oversized_object_that_came_too_late_is_left_alone_for_longer_each_time(terms):
    term = terms()
    term.server.fail("put /big", errors.Unreachable("too late"), times=6)
    term.writer.submit("big", status("big", 1, slow=True))
    await term.settle(within=600)
    waits = [later - earlier - 0.01 for earlier, later in pairwise(term.server.at)]
    assert term.results == ["done"]
    for wait, least in zip(waits, (5, 10, 20, 40, 60, 60), strict=True):
        assert least <= wait <= 1.3 * least


async def test_an_object_that_is_oversized_no_more_waits_for_no_other(terms):
    term = terms()
    term.server.hangs = "put /big"
    for n in range(3):
        term.writer.submit(f"big{n}", status(f"big{n}", 1, slow=True))
    term.writer.submit("j", status("j", 1, slow=True))
    await asyncio.sleep(1)
    term.writer.submit("j", status("j", 2))
    await asyncio.sleep(0.02)
    assert term.server.log[-1] == "put /j 2"
    assert term.results == ["done"]


async def test_progress_before_a_create_is_written_at_once(terms):
    term = terms()
    term.writer.submit("j", status("j", 0, urgent=False))
    await term.settle()
    term.writer.submit("j", status("j", 1, urgent=False))
    term.writer.submit("j", create("p1"))
    await term.settle(within=1)
    assert term.server.log == ["put /j 0", "put /j 1", "create p1"]


async def test_a_decision_that_waits_stays_one_when_progress_replaces_it(terms):
    term = terms(rate=1.0)
    for n in range(3):
        term.writer.submit(f"k{n}", status(f"k{n}", 1))
    term.writer.submit("j", status("j", 1))
    term.writer.submit("p", status("p", 1, urgent=False))
    term.writer.submit("j", status("j", 2, urgent=False))
    await term.settle()
    assert term.server.log[-2:] == ["put /j 2", "put /p 1"]


async def test_the_rate_holds_over_all_keys(terms):
    term = terms(rate=50.0)
    for n in range(210):
        term.writer.submit(f"j{n}", status(f"j{n}", 1))
    await term.settle()
    assert 3.8 <= term.server.at[-1] - term.server.at[0] <= 4.2


async def test_flush_hurries_and_tells_whether_it_was_enough(terms):
    term = terms()
    for done in (0, 1):
        term.writer.submit("j", status("j", done, urgent=False))
        await asyncio.sleep(0.1)
    assert term.writer.depth == 1
    began = asyncio.get_running_loop().time()
    assert await term.writer.flush(5)
    assert asyncio.get_running_loop().time() - began < 0.1
    term.server.fail("put", errors.Unreachable("down"))
    term.writer.submit("j", status("j", 2))
    assert not await term.writer.flush(5)


async def test_it_has_caught_up_when_nothing_urgent_waits_for_its_turn(terms):
    term = terms(rate=10, progress_rate=0.01)
    await term.writer.caught_up()
    for n in range(20):
        term.writer.submit(f"j{n}", status(f"j{n}", 1))
        term.writer.submit(f"p{n}", status(f"p{n}", 1, urgent=False))
    async with asyncio.timeout(60):
        await term.writer.caught_up()
    assert sum(what.startswith("put /j") for what in term.server.log) == 20
    assert term.writer.depth >= 10  # progress waits longer
    term.writer.submit("j0", status("j0", 2))
    term.writer.drop_all()
    await term.writer.caught_up()


async def test_depth_and_age_of_the_queue(terms):
    term = terms()
    assert (term.writer.depth, term.writer.oldest) == (0, 0.0)
    term.server.fail("put", errors.Unreachable("down"))
    term.writer.submit("j", status("j", 2))
    term.writer.submit("j", create("p1"))
    await asyncio.sleep(60)
    assert term.writer.depth == 2
    assert term.writer.oldest == pytest.approx(60)


async def test_what_is_forgotten_is_neither_written_nor_remembered(terms):
    term = terms()
    term.server.took = 1.0
    term.writer.submit("j", status("j", 1))
    term.writer.submit("j", create("p1"))
    term.writer.submit("k", create("p2"))
    await asyncio.sleep(0.5)
    assert term.writer.forget("j") == frozenset(), "nothing was created yet"
    assert term.writer.forget("stranger") == frozenset()
    assert term.expected("j") == frozenset()
    await term.settle()
    assert sorted(term.server.log) == ["create p2", "put /j 1"]
    assert not len(term.writer._queues)
    term.writer.submit("j", status("j", 1))
    await term.settle()
    assert term.server.log.count("put /j 1") == 2


async def test_what_is_forgotten_while_it_fails_is_not_tried_again(terms):
    term = terms()
    term.server.fail("put", errors.Unreachable("down"))
    term.writer.submit("j", status("j", 1))
    await asyncio.sleep(0.005)
    term.writer.forget("j")
    await term.settle()
    await asyncio.sleep(30)
    assert term.server.log == ["put /j 1"]
    assert not len(term.writer._queues)


async def test_pods_that_nobody_has_seen_are_told_when_their_key_is_forgotten(terms):
    term = terms()
    for name in ("seen", "made", "under way", "waits"):
        term.writer.submit("j", create(name))
    await asyncio.sleep(0.025)
    term.writer.observed("ns/seen")
    assert term.writer.forget("j") == {"ns/made", "ns/under way"}
    await term.settle()
    assert term.server.log == ["create seen", "create made", "create under way"]
    assert not term.writer._expected._pods


@pytest.mark.parametrize("at", [0.005, 0.015, 0.3], ids=["one is under way", "one has failed", "both wait"])
async def test_pods_are_deleted_also_when_their_key_is_forgotten(terms, at):
    term = terms()
    term.server.fail("delete", errors.Unreachable("down"), times=2)
    if at > 0.1:
        term.server.fail("put", errors.Unreachable("down"))
        term.writer.submit("j", status("j", 1))
    for name in ("p1", "p2"):
        term.writer.submit("j", DeletePod("ns", name, name))
        term.writer.submit("j", status("j", 2))
    await asyncio.sleep(at)
    term.writer.forget("j")
    await term.settle()
    assert [what for what in term.server.log if "put" not in what] == ["delete p1"] * 3 + ["delete p2"]
    assert "put /j 2" not in term.server.log
    assert not len(term.writer._queues)


@pytest.mark.parametrize("at", [0.005, 0.015], ids=["is under way", "has failed"])
async def test_a_create_that_fails_is_not_tried_again_for_a_key_that_is_forgotten_and_used_again(terms, at):
    term = terms()
    term.server.fail("create", errors.Unreachable("down"))
    term.writer.submit("j", create("p1"))
    await asyncio.sleep(at)
    assert term.writer.forget("j") == {"ns/p1"}, "the answer alone may be lost"
    term.writer.submit("j", DeletePod("ns", "p0", "p0"))
    await term.settle()
    assert term.server.log == ["create p1", "delete p0"]


async def test_what_an_outcome_submits_comes_after_it(terms):
    term = terms()

    def on_outcome(outcome: Outcome) -> None:
        if isinstance(outcome.operation, CreatePod) and outcome.result == "refused":
            term.writer.submit("j", status("j", 2))

    term.finished = on_outcome
    term.server.fail("create", errors.Forbidden("quota"))
    term.writer.submit("j", status("j", 1))
    term.writer.submit("j", create("p1"))
    await term.settle()
    assert term.server.log == ["put /j 1", "create p1", "put /j 2"]


async def test_a_key_that_an_outcome_forgets_and_uses_again_keeps_its_order(terms):
    term = terms()

    def on_outcome(outcome: Outcome) -> None:
        if outcome.result == "gone":
            term.writer.forget("j")
            term.writer.submit("j", create("p1"))

    term.finished = on_outcome
    term.server.fail("put /j 1", errors.NotFound("job"), times=1)
    term.writer.submit("j", status("j", 1))
    await asyncio.sleep(0.015)
    assert term.server.log[-1] == "create p1"
    term.writer.submit("j", status("j", 2))
    await asyncio.sleep(0.001)
    assert term.server.under_way == 1
    await term.settle()
    assert term.server.log == ["put /j 1", "create p1", "put /j 2"]


async def test_a_cancelled_writer_abandons_what_is_under_way(terms):
    term = terms()
    term.server.took = 100
    term.writer.submit("j", status("j", 1))
    await asyncio.sleep(1)
    term.task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await term.task
    assert term.server.under_way == 0
    assert term.writer.depth == 0
    assert term.ends == 0


async def test_a_pod_starts_after_the_status_that_records_its_chunk(terms):
    term = terms()
    for operation in (status("j", 1), start("p1"), status("j", 2), start("p2")):
        term.writer.submit("j", operation)
    await term.settle()
    log = ["put /j 1", "merge /p1 {'metadata': {'uid': 'p1'}}", "put /j 2", "merge /p2 {'metadata': {'uid': 'p2'}}"]
    assert term.server.log == log
    assert term.results == ["done"] * 4


async def test_after_a_refused_status_no_pod_starts_until_another_one_was_accepted(terms):
    term = terms()
    term.server.fail("put /j 1", errors.Invalid("no"))
    for operation in (status("j", 1), start("p1"), status("j", 2), start("p2")):
        term.writer.submit("j", operation)
    await term.settle()
    assert [what.partition(" {")[0] for what in term.server.log] == ["put /j 1", "put /j 2", "merge /p2"]
    said = [(type(o.operation).__name__, o.result) for o in term.outcomes]
    assert said == [("PutStatus", "refused"), ("StartPod", "refused"), ("PutStatus", "done"), ("StartPod", "done")]
    assert term.outcomes[1].message == "the status that was to record it was refused"


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (errors.NotFound("no"), "gone"),
        (errors.Replaced("another uid"), "gone"),
        (errors.Invalid("spec"), "refused"),
        (errors.Forbidden("a policy"), "refused"),
    ],
)
async def test_a_start_that_cannot_be_is_told(terms, error, result):
    term = terms()
    term.server.fail("merge", error)
    term.writer.submit("j", start("p1"))
    await term.settle()
    assert term.results == [result]
    assert term.server.log == ["merge /p1 {'metadata': {'uid': 'p1'}}"]


@pytest.mark.parametrize("error", [errors.Busy("503"), errors.Conflict("again"), errors.NoRight("it starts")])
async def test_a_start_that_may_succeed_later_is_tried_again(terms, error):
    term = terms()
    term.server.fail("merge", error, times=2)
    term.writer.submit("j", start("p1"))
    await term.settle()
    assert term.results == ["done"]
    assert len(term.server.log) == 3


@pytest.mark.parametrize(
    ("owners", "result"),
    [
        ([{"uid": "b1"}], "done"),
        ([{"uid": "other"}, {"uid": "b1"}], "done"),
        ([{"uid": "other"}], "conflict"),
        (None, "conflict"),
    ],
    ids=["the answer was lost", "more owners", "another owner's", "no owner"],
)
async def test_an_object_whose_name_is_taken_is_left_alone_unless_it_is_the_same(terms, owners, result):
    term = terms()
    term.server.fail("create", errors.AlreadyExists("exists"))
    term.server.answer("metadata", {"metadata": {"ownerReferences": owners} if owners else {}})
    term.writer.submit("b", make("nightly"))
    await term.settle()
    assert term.server.log == ["create nightly", "metadata nightly"]
    assert term.results == [result]


async def test_an_object_that_was_there_and_is_deleted_is_created_again(terms):
    term = terms()
    term.server.fail("create", errors.AlreadyExists("exists"), times=1)
    term.server.fail("metadata", errors.NotFound("gone"))
    term.writer.submit("b", make("nightly"))
    await term.settle()
    assert term.server.log == ["create nightly", "metadata nightly", "create nightly"]
    assert term.results == ["done"]


@pytest.mark.parametrize("error", [errors.Invalid("no"), errors.Forbidden("quota")])
async def test_an_object_that_is_refused_is_told(terms, error):
    term = terms()
    term.server.fail("create", error)
    term.writer.submit("b", make("nightly"))
    await term.settle()
    assert (term.results, term.outcomes[0].message) == (["refused"], str(error))


@pytest.mark.parametrize(("now", "fell"), [("12", False), ("7", True), ("x", False)])
async def test_an_object_that_is_older_than_it_was_shows_that_the_store_was_set_back(now, fell):
    class Client:
        async def metadata(self, path):
            return {"uid": "u", "resourceVersion": now}

        async def put_status(self, path, body, **_):
            if body["metadata"]["resourceVersion"] == "9":
                raise errors.Conflict("the object has been modified")
            return body

    write = status("j", 1)
    write = replace(write, body={**write.body, "metadata": {"name": "j", "uid": "u"}})
    if fell:
        with pytest.raises(errors.StoreFellBack, match="/j has resource version 7, and had 9 before"):
            await perform(Client(), "j", write, version="9")
    else:
        assert (await perform(Client(), "j", write, version="9")).result == "done"


async def test_a_lost_answer_does_not_make_the_writer_forget_how_new_an_object_was():
    class Client:
        clock = clock(asyncio.get_running_loop().time)
        tries = 0

        async def metadata(self, path):
            return {"uid": "u", "resourceVersion": "7"}

        async def put_status(self, path, body, **_):
            self.tries += 1
            if self.tries == 1:
                return {"metadata": {"resourceVersion": "9"}}
            raise errors.Unreachable("the answer got lost")

    client, told = Client(), []
    owner = SimpleNamespace(leading=lambda: True, finished=told.append, fenced=None, count_write=lambda *_: None)
    writer = Writer(client, owner)
    task = asyncio.create_task(writer.run())
    for done in (1, 2):
        write = status("j", done)
        writer.submit("j", replace(write, body={**write.body, "metadata": {"name": "j", "uid": "u"}}, version="5"))
        await asyncio.sleep(0.1)
    with pytest.raises(ExceptionGroup) as found:
        await task
    assert found.value.subgroup(errors.StoreFellBack)
    assert [one.result for one in told] == ["done"]
    assert client.tries == 2
