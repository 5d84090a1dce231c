"""Names and label values that contain a user's name, which may be longer than what is made of it.

A cut may end with a dot or a dash, which the API server refuses, and two names may have one beginning. So a name
that is too long is cut, and a digest of the whole name follows.
"""

import hashlib
from typing import Final

LONGEST_NAME: Final = 253
"""Characters of an object's name: a DNS subdomain (RFC 1123) in lower case."""
LONGEST_LABEL: Final = 63
"""Characters of a label's value."""
DIGITS: Final = 12


def shorten(name: str, most: int) -> str:
    """Return a valid name as it is, or cut to ``most`` characters with a digest at its end."""
    return name if len(name) <= most else with_digest(name, name, most)


def with_digest(name: str, about: str, most: int) -> str:
    """Return the beginning of a valid name and a digest of ``about``: at most ``most`` characters."""
    digest = hashlib.sha256(about.encode()).hexdigest()[:DIGITS]
    return f"{name[: most - DIGITS - 1].rstrip('-.')}-{digest}"
