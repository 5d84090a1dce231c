"""The archive: a launcher, the wheel, the locked packages, the licence. The same sources give the same bytes."""

import gzip
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = "kubectl-punctual"


def files(wheel: Path) -> dict[str, Path]:
    """Return the files of the archive by name."""
    return {
        LAUNCHER: ROOT / "hack/krew_lib/launcher.py",
        wheel.name: wheel,
        "cli.lock": ROOT / "requirements/cli.lock",
        "LICENSE": ROOT / "LICENSE",
    }


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout."""
    words = "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir"
    subprocess.run([sys.executable, *words, folder, ROOT], check=True)
    return next(folder.glob("*.whl"))


def packed(found: dict[str, Path]) -> bytes:
    """Return the files as tar.gz, without times and owners."""
    tarred = io.BytesIO()
    with tarfile.open(fileobj=tarred, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in sorted(found.items()):
            info = tarfile.TarInfo(name)
            content = path.read_bytes()
            info.size, info.mode = len(content), 0o755 if name == LAUNCHER else 0o644
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(tarred.getvalue(), mtime=0)


def build() -> bytes:
    """Return the archive of this checkout."""
    with tempfile.TemporaryDirectory() as folder:
        return packed(files(build_wheel(Path(folder))))
