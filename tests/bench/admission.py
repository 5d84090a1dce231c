#!/usr/bin/env python3
"""What a decision of admission takes, fast and exact, beside the papers' algorithms (`punctual bench admission`).

tests/bench/admission.py [--quick]
"""

import json
import sys

from punctual.cli.bench import admission

if __name__ == "__main__":
    print(json.dumps({"admission": admission(quick="--quick" in sys.argv[1:])}, indent=1))  # noqa: T201  what it is for
