"""krew's manifest and the archive that it names."""

import hashlib
import io
import re
import tarfile
from pathlib import Path

import pytest
import yaml
from krew_lib.archive import build
from krew_lib.manifest import manifest, text

from punctual import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def archive():
    return build()


def test_the_archive_has_all_that_a_first_start_needs(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = {info.name: info for info in tar}
    wheel = f"punctual_operator-{__version__}-py3-none-any.whl"
    assert set(files) == {"kubectl-punctual", wheel, "cli.lock", "LICENSE"}
    assert {name for name, info in files.items() if info.mode & 0o111} == {"kubectl-punctual"}
    assert {info.mtime for info in files.values()} == {0}
    assert build() == archive, "the same sources give the same bytes"


def test_the_manifest_names_version_platforms_and_the_hash_of_the_archive(archive):
    made = yaml.safe_load(text(manifest(archive, version=__version__, uri="https://x/a.tar.gz", homepage="https://x")))
    assert (made["apiVersion"], made["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert made["metadata"] == {"name": "punctual"}, "the name of the file, and kubectl's word"
    spec = made["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert spec["homepage"].startswith("https://")
    assert len(spec["shortDescription"]) <= 50, "krew's guide: a few words"
    (platform,) = spec["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive).hexdigest()
    assert (platform["uri"], platform["bin"]) == ("https://x/a.tar.gz", "kubectl-punctual")
    assert platform["selector"] == {
        "matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]
    }
    assert all(set(each) == {"from", "to"} for each in platform["files"])
    assert "kubectl_complete-punctual" in spec["caveats"]
