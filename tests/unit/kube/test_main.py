"""What ends the process, and what only ends a term."""

import asyncio
from types import SimpleNamespace

import pytest

from punctual import errors
from punctual.kube.main import STEP, Config, Operator


@pytest.mark.parametrize(
    ("leads", "error", "ends"),
    [
        (None, errors.Fenced("no longer leading"), False),
        (4, errors.Fenced("no longer leading"), False),  # elected anew before the term's end was heard of
        (3, errors.Fenced("a newer leader has written"), True),
        (None, errors.InvariantError("two chunks own the same unit"), True),
    ],
)
async def test_a_writer_that_sees_the_lease_run_out_ends_the_term_and_not_the_replica(leads, error, ends):
    operator = Operator(Config.read({}))
    operator._elector = SimpleNamespace(leads=lambda epoch: epoch == leads)

    async def run():
        raise ExceptionGroup("unhandled errors in a TaskGroup", [error])

    await operator._lead(SimpleNamespace(run=run, epoch=3), None)
    assert operator._ended.done() is ends


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PUNCTUAL_LEASE_LEASE", "soon"),
        ("PUNCTUAL_PLACEHOLDER", "{"),
        ("PUNCTUAL_PLACEHOLDER", "[]"),
        ("PUNCTUAL_PROMETHEUS", "prometheus:9090"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named(name, value):
    with pytest.raises(ValueError, match=name):
        Config.read({name: value})


@pytest.mark.parametrize(("stalled", "wrong"), [(59.0, False), (61.0, True)])
async def test_a_takeover_that_hangs_is_not_healthy(stalled, wrong):
    operator = Operator(Config.read({}))
    assert operator._unhealthy() is None
    operator._term = SimpleNamespace(stalled=stalled, silent=0.0, waiting=0.0)
    assert bool(operator._unhealthy()) is wrong


async def test_a_replica_beside_another_installation_is_not_ready_and_says_whose_cluster_it_is():
    operator = Operator(Config.read({"POD_NAMESPACE": "second"}))
    operator._caches = SimpleNamespace(ready=True)
    operator._elector = SimpleNamespace(other_installation="first/punctual")
    assert "the release punctual in namespace first leads" in operator._unready()
    operator._elector = SimpleNamespace(other_installation="")
    assert operator._unready() is None


@pytest.mark.parametrize(("told", "asked"), [(8, 8), (9, 9), (8 + STEP, 8 + STEP), (2**62, 8 + STEP)])
async def test_an_epoch_that_an_agent_has_heard_is_led_above_in_steps(told, asked):
    operator, above = Operator(Config.read({})), []
    operator._elector = SimpleNamespace(begin_above=above.append)
    operator._term = SimpleNamespace(epoch=8, began=1.0)
    operator.heard_another(told)
    assert above == [asked]


@pytest.mark.parametrize(("error", "writes"), [(errors.StoreFellBack("set back"), False), (OSError("broken"), True)])
async def test_what_was_decided_is_not_written_into_a_store_that_was_set_back(error, writes):
    operator, retired = Operator(Config.read({})), []

    async def retire(_):
        retired.append(True)

    operator._term = SimpleNamespace(retire=retire)
    operator._leading = asyncio.ensure_future(asyncio.Event().wait())
    operator._fail(error)
    await operator._retire()
    assert bool(retired) is writes
    assert operator._leading.cancelled()
