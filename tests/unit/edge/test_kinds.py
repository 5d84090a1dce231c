"""The model of the API server's validation: what is wrong already may stay, as long as it is not touched."""

import pytest
from edge.kinds import BY_RESOURCE, Invalid, validate

PROFILE = BY_RESOURCE["punctual.dev/v1alpha1", "profiles"]


def profile(per_unit, startup="1s"):
    head = {"apiVersion": PROFILE.version, "kind": "Profile", "metadata": {"name": "p", "namespace": "ns"}}
    return {**head, "spec": {"perUnit": per_unit, "startup": startup}}


@pytest.mark.parametrize("before", [None, profile("1s"), profile("later")])
def test_a_wrong_value_that_was_not_there_is_refused(before):
    with pytest.raises(Invalid, match="perUnit"):
        validate(PROFILE, profile("soon"), before)


def test_a_wrong_value_that_was_there_stays_and_others_change():
    validate(PROFILE, profile("soon", "2s"), profile("soon"))
    with pytest.raises(Invalid, match=r"^spec\.startup") as refused:
        validate(PROFILE, profile("soon", "later"), profile("soon"))
    assert len(refused.value.causes) == 1
