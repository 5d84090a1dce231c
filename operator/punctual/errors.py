"""What can go wrong, as one tree.

    PunctualError
    ├── UserError(reason, message)      what a person asked cannot be done: say why, do not retry
    ├── ClusterError(retry_after)       the world is in the way: try again
    │   ├── Unreachable                 no answer: refused, cut off or too late; a write may have been done
    │   ├── Busy                        429 or 5xx: asked to come back after retry_after
    │   ├── Unauthorized                401: the credentials are not accepted (any more)
    │   ├── Forbidden                   403: by quota or another admission plugin
    │   │   └── NoRight                 403: by RBAC; also of a server that starts and has not read its rules
    │   ├── NotFound                    404
    │   ├── Conflict                    409: another wrote in between, or a precondition does not hold
    │   │   ├── AlreadyExists           409 to a create
    │   │   └── Replaced                the object has another uid than the one meant
    │   ├── Gone                        410: the resource version is too old, list again
    │   ├── Invalid                     422, 400 and what else will not get better by itself
    │   └── Fenced                      a newer leader holds the pool: stop leading at once
    └── InvariantError                  the program is wrong: ends the leader's turn, never retried

"No" is not an exception: admission returns it as a value (``scheduling.admission``).
"""


class PunctualError(Exception):
    """Root of everything this project raises on purpose."""


class UserError(PunctualError):
    """A request that cannot be carried out as written.

    ``reason`` is a word of :mod:`punctual.reasons`; ``message`` names the field and what would be right.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class ClusterError(PunctualError):
    """The API server, a node or the network did not do its part; worth another try after ``retry_after`` s."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unreachable(ClusterError):  # noqa: N818  a state of the world, like the nine below
    """No answer: refused, cut off, or later than the call's deadline. A write may have been done all the same."""


class Busy(ClusterError):  # noqa: N818
    """The API server asks for patience (429) or failed (5xx); a write may have been done all the same."""


class Unauthorized(ClusterError):  # noqa: N818
    """The credentials are not accepted: expired, rotated or wrong (401)."""


class Forbidden(ClusterError):  # noqa: N818
    """Not allowed: RBAC, quota, LimitRange, Pod Security or another admission plugin says so (403)."""


class NoRight(Forbidden):
    """This account may not (now): a server that has just begun says so too, until it has read its RBAC rules."""


class NotFound(ClusterError):  # noqa: N818
    """There is no such object, or no such resource (404)."""


class Conflict(ClusterError):  # noqa: N818
    """Another wrote in between, or a precondition (uid, resource version) does not hold (409)."""


class AlreadyExists(Conflict):
    """An object of this name is there already; whose it is has to be looked at (409 to a create)."""


class Replaced(Conflict):
    """The object meant is gone: it has another uid than the precondition says, or there is none."""


class Gone(ClusterError):  # noqa: N818
    """The resource version or continue token asked for is too old: list again (410).

    ``resume`` is the continue token by which the API server gives the rest of a list as it is now; empty: none.
    """

    def __init__(self, message: str, *, resume: str = "", retry_after: float = 1.0) -> None:
        super().__init__(message, retry_after=retry_after)
        self.resume = resume


class Invalid(ClusterError):  # noqa: N818
    """The request can never be right as it stands: schema, CEL rule, malformed body or path (422, 400, …)."""


class Fenced(ClusterError):  # noqa: N818  the field's word: a fenced leader
    """The API server refused a write because a higher epoch is already there."""


class InvariantError(PunctualError):
    """A structure broke its own rule (a ``check()`` failed): the leader must stop and rebuild."""
