"""A worker whose units wait for a file each: the test decides when one is done."""

import sys
import time
from pathlib import Path

from punctual import worker

gates = Path(sys.argv[1])
for unit in worker.units():
    (gates / f"begun-{unit}").touch()
    while not (gates / f"open-{unit}").exists():
        time.sleep(0.005)
begin, end = worker.span()
worker.result(f"{begin}-{end}")
