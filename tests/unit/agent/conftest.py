import importlib.util
import sys
from pathlib import Path

import pytest
from trees import Tree


def _load(name):
    # importlib mode: a helper beside the tests is no package
    spec = importlib.util.spec_from_file_location(
        f"punctual_agent_tests_{name}", Path(__file__).with_name(f"{name}.py")
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


operators = _load("operators")

KINDS = [("v1", "cgroupfs"), ("v1", "systemd"), ("v2", "cgroupfs"), ("v2", "systemd")]


@pytest.fixture(params=KINDS, ids=["-".join(kind) for kind in KINDS])
def tree(request, tmp_path):
    version, driver = request.param
    return Tree(tmp_path, version=version, driver=driver)


@pytest.fixture
def make_tree(tmp_path):
    return lambda version="v2", driver="systemd", **more: Tree(tmp_path, version=version, driver=driver, **more)


@pytest.fixture
def authority(tmp_path):
    return operators.Authority(tmp_path / "authority")


@pytest.fixture
def other_authority(tmp_path):
    return operators.Authority(tmp_path / "other-authority")


@pytest.fixture
def make_operator(authority):
    made = []

    def make(authority=authority, **more):
        made.append(operators.Operator(authority, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def operator(make_operator):
    return make_operator()
