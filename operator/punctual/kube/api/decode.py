"""Decodes JSON from the API server, whatever its nesting depth.

Where a schema keeps unknown fields (a job's template), the API server accepts objects nested ten thousand deep.
Decoders fail at some thousand levels, and the whole list or watch fails with them. The danger: one user's manifest
would hide the objects of all others. Parts deeper than any real object are therefore replaced by a text that cannot be
mistaken for a pod.
"""

import re
from typing import Any, Final

import orjson

DEEPEST: Final = 200
"""Levels that are kept if the whole object cannot be decoded. orjson writes at most 254."""
CUT: Final = b'"nested too deep"'

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def decode(data: bytes | str) -> Any:
    """Return the decoded JSON without parts that are nested too deep.

    Raises orjson.JSONDecodeError if the data is not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        whole = data.encode() if isinstance(data, str) else data
        if (kept := _shallow(whole)) == whole:
            raise
        return orjson.loads(kept)


def _shallow(data: bytes) -> bytes:
    kept, depth, at = [], 0, 0
    for token in _TOKEN.finditer(data):
        match token[0]:
            case b"{" | b"[":
                depth += 1
                if depth == DEEPEST + 1:
                    kept.append(data[at : token.start()])
            case b"}" | b"]":
                depth -= 1
                if depth == DEEPEST:
                    kept.append(CUT)
                    at = token.end()
    return b"".join(kept) + data[at:]
