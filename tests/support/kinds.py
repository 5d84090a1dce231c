"""Our kinds on an API server that has just begun."""

import subprocess
import time
from pathlib import Path

from punctual.kube.api import KINDS

ROOT = Path(__file__).parents[2]
NAMES = ("dj", "pool", "profile", "reservation", "tr")


def teach(kubectl, kubeconfig):
    """Let the server have our kinds; return once it serves them and tells of them, a moment after they are there."""
    command = [kubectl, f"--kubeconfig={kubeconfig}"]
    subprocess.run([*command, "apply", "--server-side", "-f", ROOT / "crds"], check=True, stdout=-1)
    examples = "\n---\n".join(kind.EXAMPLE for kind in KINDS)
    create = ("create", "--dry-run=server", "-f", "-")
    until = time.monotonic() + 120
    for words, stdin in ((create, examples), *((("explain", f"{name}.spec"), "") for name in NAMES)):
        while True:
            done = subprocess.run([*command, *words], input=stdin, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            assert time.monotonic() < until, done.stderr
            time.sleep(0.2)
