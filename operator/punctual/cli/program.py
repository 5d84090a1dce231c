"""The name under which the program was started: ``punctual``, or ``kubectl punctual`` where it is kubectl's plugin."""

import re
import sys
from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

PLUGIN: Final = "kubectl-punctual"
COMPLETION: Final = "kubectl_complete-punctual"
"""kubectl starts this to complete words of the plugin (kubectl 1.26 and later)."""
_SPOKEN = re.compile(r"(?<![\w/-])punctual (?=(plan|watch|timeline|simulate|crds|submit|why|top|pools|cancel|page)\b)")


def started_as() -> str:
    """Return the name of the file that was started."""
    return PurePath(sys.argv[0]).name.removesuffix(".exe")


def name() -> str:
    """Return what a user types to start the program."""
    return "kubectl punctual" if started_as() in {PLUGIN, COMPLETION} else "punctual"


def similar(word: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the names that are like it, or else some that exist."""
    import difflib  # noqa: PLC0415  only for errors

    known = list(dict.fromkeys(known))
    if near := difflib.get_close_matches(word, known, 5, 0.5):
        return f"; similar: {', '.join(near)}"
    return f"; there {'is' if len(known) == 1 else 'are'} {', '.join(known[:5])}" if known else "; there is none"


def spoken(text: str) -> str:
    """Return a text for users with the name that this user types in its examples."""
    return _SPOKEN.sub(f"{name()} ", text)
