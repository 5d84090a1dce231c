"""The model of the API server, which ``hack/edge`` plays with, gives the product the answers of a real one."""

import os

import pytest
from edge.compare import compare, model_client, model_server

from punctual.kube.api.resources import Resource
from punctual.kube.cluster.client import ApiClient

SEQUENCES = 2000 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 300
NAMESPACES = Resource("v1", "namespaces")


@pytest.mark.parametrize("part", range(10))
async def test_random_requests_get_the_answers_of_a_real_server(kubeconfig, part):
    """Every tenth sequence of all, each in a namespace of its own."""
    different = []
    async with ApiClient(str(kubeconfig)) as real:
        for seed in range(part, SEQUENCES, 10):
            namespace = f"model-{seed}"
            await real.create(NAMESPACES.path(), {"metadata": {"name": namespace}})
            async with model_client(model_server(namespace)) as model:
                if found := await compare(seed, model, real, namespace):
                    different.append(f"sequence {seed}: {found}")
    assert not different, "\n".join(different)
