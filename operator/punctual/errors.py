"""The exceptions of the project, as one tree.

    PunctualError
    ├── UserError(reason, message)      a user's request cannot be carried out: explain why, do not retry
    ├── ClusterError(retry_after)       the cluster failed: try again
    │   ├── Unreachable                 no answer: refused, cut off or too late; a write may have been done
    │   ├── Busy                        429 or 5xx: try again after retry_after
    │   ├── Unauthorized                401: the credentials are not accepted (any more)
    │   ├── Forbidden                   403: by quota or another admission plugin
    │   │   └── NoRight                 403: by RBAC; also of a server that starts and has not read its rules
    │   ├── NotFound                    404
    │   ├── Conflict                    409: another client wrote in between, or a precondition does not hold
    │   │   ├── AlreadyExists           409 to a create
    │   │   └── Replaced                the object has another uid than expected
    │   ├── Gone                        410: the resource version is too old, list again
    │   ├── Invalid                     422, 400 and other errors that a retry cannot repair
    │   └── Fenced                      a newer leader holds the pool: stop leading at once
    ├── StoreFellBack                   the API server's store is older than it was: end the process with its caches
    └── InvariantError                  a bug in the program: ends the leader's term, never retried

A refusal is not an exception: admission returns it as a value (``scheduling.admission``).
"""


class PunctualError(Exception):
    """Base class of all exceptions that this project raises on purpose."""


class UserError(PunctualError):
    """A request that cannot be carried out as written.

    ``reason`` is a constant of :mod:`punctual.reasons`. ``message`` names the field and the correct value.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class ClusterError(PunctualError):
    """The API server, a node or the network failed. Try again after ``retry_after`` seconds."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unreachable(ClusterError):  # noqa: N818  a state of the cluster, like the nine below
    """No answer: refused, cut off, or later than the call's deadline. The write may have been done."""


class Busy(ClusterError):  # noqa: N818
    """The API server is overloaded (429) or failed (5xx). The write may have been done."""


class Unauthorized(ClusterError):  # noqa: N818
    """The credentials are not accepted: expired, rotated or wrong (401)."""


class Forbidden(ClusterError):  # noqa: N818
    """Refused by RBAC, quota, LimitRange, Pod Security or another admission plugin (403)."""


class NoRight(Forbidden):
    """Refused by RBAC.

    A server that has just started gives this answer too, until it has read its RBAC rules.
    """


class NotFound(ClusterError):  # noqa: N818
    """The object or the resource does not exist (404)."""


class Conflict(ClusterError):  # noqa: N818
    """Another client wrote in between, or a precondition (uid, resource version) does not hold (409)."""


class AlreadyExists(Conflict):
    """An object of this name exists already (409 to a create). The caller must check its owner."""


class Replaced(Conflict):
    """The expected object is gone: there is none, or its uid is another than the precondition's."""


class Gone(ClusterError):  # noqa: N818
    """The resource version or continue token is too old: list again (410).

    ``resume`` is the continue token with which the API server returns the rest of the list at the present version. It
    is empty if there is none.
    """

    def __init__(self, message: str, *, resume: str = "", retry_after: float = 1.0) -> None:
        super().__init__(message, retry_after=retry_after)
        self.resume = resume


class Invalid(ClusterError):  # noqa: N818
    """The request is wrong as it stands: schema, CEL rule, malformed body or path (422, 400, …)."""


class Fenced(ClusterError):  # noqa: N818  the standard term: a fenced leader
    """The API server refused a write because the object carries a higher epoch."""


class StoreFellBack(PunctualError):  # noqa: N818  what has happened to the cluster
    """A consistent read shows an older state than an earlier answer: the store was restored from a backup.

    All that this process remembers may never have happened. Only a new process, with caches of its own, knows what is
    there. Caches and watches prove nothing: one API server of several may lag behind.
    """


class InvariantError(PunctualError):
    """A structure broke its own invariant (a ``check()`` failed). The leader must stop and rebuild."""
