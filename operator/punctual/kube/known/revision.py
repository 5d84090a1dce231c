"""How far the API server's store is known to have come: it never goes back, unless it is restored from a backup.

Each write gives its object a resource version, which is a number that grows with each write of the store. So a
*consistent* read (one that names no resource version) or the answer to an own write cannot be older than what was known
when it was sent. If it is, the store was set back (`StoreFellBack`). The comparison stays within one resource, because
resources may lie in stores of their own. What a cached list or a watch says may raise what is known. It never shows a
fall, because an API server may lag behind another one.
"""

from punctual.errors import StoreFellBack


def number(version: str) -> int:
    """Return a resource version as a number that can be compared; 0 if it is none, which tells nothing."""
    return int(version) if version.isascii() and version.isdecimal() else 0


def newest(one: str, other: str) -> str:
    """Return the newer of two versions of the same resource."""
    return other if number(other) >= number(one) else one


def check(what: str, before: str, now: str) -> None:
    """Raise StoreFellBack if ``now`` is the older of two versions of the same object, or of lists of one resource.

    ``before`` must have been known when the request for ``now`` was sent.
    """
    if 0 < number(now) < number(before):
        raise StoreFellBack(f"{what} has resource version {now}, and had {before} before: the store was set back")
