"""JSON from the API server, however deep somebody has nested it.

Where a schema keeps unknown fields (a job's template) the API server takes objects nested ten thousand deep. Decoders
give up at some thousand, and with them a whole list or watch: one user's manifest would blind the operator to all
others. So what lies deeper than anything real is cut out, and words stand in its place that nothing takes for a pod.
"""

import re
from typing import Any, Final

import orjson

DEEPEST: Final = 200
"""Levels that are kept where not all can be read; orjson writes no more than 254."""
CUT: Final = b'"nested too deep"'

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def decode(data: bytes | str) -> Any:
    """Return what the JSON says, without what is nested too deep; orjson.JSONDecodeError where it is no JSON."""
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
