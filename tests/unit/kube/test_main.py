"""What ends the process, and what only ends a term."""

from types import SimpleNamespace

import pytest

from punctual import errors
from punctual.kube.main import Config, Operator


@pytest.mark.parametrize(
    ("leading", "error", "ends"),
    [
        (False, errors.Fenced("no longer leading"), False),
        (True, errors.Fenced("a newer leader has written"), True),
        (False, errors.InvariantError("two chunks own the same unit"), True),
    ],
)
async def test_a_writer_that_sees_the_lease_run_out_ends_the_term_and_not_the_replica(leading, error, ends):
    operator = Operator(Config.read({}))
    operator._elector = SimpleNamespace(leading=leading)

    async def run():
        raise ExceptionGroup("unhandled errors in a TaskGroup", [error])

    await operator._lead(SimpleNamespace(run=run, epoch=3), None)
    assert operator._ended.done() is ends


@pytest.mark.parametrize(
    ("name", "value"), [("PUNCTUAL_LEASE_LEASE", "soon"), ("PUNCTUAL_PLACEHOLDER", "{"), ("PUNCTUAL_PLACEHOLDER", "[]")]
)
def test_what_is_wrong_in_the_environment_is_named(name, value):
    with pytest.raises(ValueError, match=name):
        Config.read({name: value})
