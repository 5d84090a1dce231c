"""kubectl, which has the user's credentials: commands that end, and watches that do not.

The command line imports no Kubernetes client: kubectl knows every way to log in, and starts faster. A watch is
``kubectl get --raw …?watch=1``, read line by line in a thread. The changes of all watches go into one queue. A watch
that ends is opened again. A ``Reset`` announces that: the changes after it describe all objects anew.
"""

import json
import queue
import re
import subprocess
import threading
from collections.abc import Sequence
from typing import Final, Self

from punctual.errors import ClusterError, PunctualError
from punctual.labels import JOB_UID_LABEL
from punctual.view.changes import Change, Json, Reset

JOBS = "/apis/punctual.dev/v1alpha1/{scope}divisiblejobs"
PODS = f"/api/v1/{{scope}}pods?labelSelector={JOB_UID_LABEL}"
POOLS = "/apis/punctual.dev/v1alpha1/pools"
RATES = "/apis/punctual.dev/v1alpha1/{scope}targetrates"
OPTIONAL: Final = frozenset({"Pool", "TargetRate"})
"""Kinds without which a screen of jobs is of use."""
AGAIN = 1.0
"""Seconds before a watch that ended is opened again."""


_FORBIDDEN: Final = re.compile(
    r'\(Forbidden\).*User "(?P<user>[^"]+)" cannot (?P<verb>\w+) resource "(?P<what>[\w/]+)".*'
    r'(?:in the namespace "(?P<where>[^"]+)"|at the cluster scope)'
)


def forbidden(said: str) -> str | None:
    """Return, for a user without a right, one sentence that names the role to bind; None: kubectl says something else.

    It contains "(Forbidden)" as kubectl's words do.
    """
    found = _FORBIDDEN.search(said)
    if found is None:
        return None
    user, verb, what, where = found.groups()
    if what == "pools":
        bind = f"kubectl create clusterrolebinding NAME --clusterrole=punctual-pools --user={user}"
        return f"user {user} may not {verb} pools (Forbidden): an administrator can allow it with {bind}"
    place = f"in namespace {where}" if where else "in all namespaces"
    bind = "a RoleBinding to the ClusterRole" if where else "a ClusterRoleBinding to the ClusterRole"
    role = "view" if verb in {"get", "list", "watch"} else "edit"
    return f"user {user} may not {verb} {what} {place} (Forbidden): an administrator can allow it with {bind} {role}"


_LOG: Final = re.compile(r"[EWIF]\d{4} \d\d:\d\d:\d\d\.\d+ ")
"""Begin of a line that kubectl's libraries log."""
_PATCH: Final = re.compile(
    r'patch: Invalid value: "\{(?:[^"\\]|\\.)*": |Error from server \(\w+\): error when applying patch:.*'
    r'error when patching "[^"]*": ',
    re.DOTALL,
)
"""What kubectl says of a refused patch before the API server's sentence: the whole object, or the whole patch."""
_NO_CLUSTER: Final = re.compile(
    r"The connection to the server (?P<at>\S+) was refused|Unable to connect to the server: (?P<why>.+)"
    r'|current-context must exist|Get "https?://(?P<address>[^/"]+)[^"]*": dial tcp'
)


def plainly(said: str) -> str:
    """Return what kubectl said without its libraries' log and without whole objects: one sentence, if it can be.

    ``said``: its output of errors. A log is kept if kubectl said nothing else.
    """
    lines = [line for line in said.splitlines() if not _LOG.match(line)]
    text = _PATCH.sub("", "\n".join(lines).strip() or said)
    found = _NO_CLUSTER.search(text)
    if found is None:
        return forbidden(text) or text
    at = found["at"] or found["address"]
    why = f"no cluster answers at {at}" if at else f"no cluster can be reached ({found['why'] or 'none is chosen'})"
    return f"{why}: start it, or choose another one with --context or KUBECONFIG"


class Call:
    """A kubectl command that runs while the caller does something else. `answer` waits for its end."""

    def __init__(self, command: Sequence[str], words: Sequence[str], stdin: str | None = None) -> None:
        self._words, self._stdin = words, stdin
        self._output, self._error = "", ""
        self._process = _start([*command, *words], stdin=None if stdin is None else subprocess.PIPE)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        self._output, self._error = self._process.communicate(self._stdin)

    def answer(self) -> str:
        """Return what the command prints. Raises ClusterError with kubectl's own words if it fails."""
        self._reader.join()
        if self._process.returncode:
            said = self._error.strip() or self._output.strip() or f"status {self._process.returncode}"
            plain = plainly(said)
            raise ClusterError(plain if plain not in said else f"kubectl {' '.join(self._words[:3])}: {plain}")
        return self._output

    def drop(self) -> None:
        """End the command if it still runs: its answer is of no use."""
        self._process.kill()
        self._reader.join()


class Kubectl:
    """The user's kubectl on the user's cluster; ``context`` as in ``kubectl --context``."""

    def __init__(self, context: str | None = None) -> None:
        self._command = ["kubectl", *(["--context", context] if context else [])]

    def begin(self, *words: str, stdin: str | None = None) -> Call:
        """Start a command. Raises PunctualError if kubectl is not installed."""
        return Call(self._command, words, stdin)

    def run(self, *words: str, stdin: str | None = None) -> str:
        """Return what a command prints. Raises ClusterError with kubectl's own words if it fails."""
        return self.begin(*words, stdin=stdin).answer()

    def get(self, *words: str) -> Json:
        """Return an object, or a list of them."""
        found: Json = json.loads(self.run("get", "-o", "json", *words))
        return found

    def begin_namespace(self) -> Call:
        """Start to read the namespace of the current context."""
        return self.begin("config", "view", "--minify", "--output", "jsonpath={..namespace}")

    def namespace(self) -> str:
        """Return the namespace of the current context."""
        return self.begin_namespace().answer().strip() or "default"

    def forward(self, namespace: str, pod: str, local: int, port: int) -> "subprocess.Popen[str]":
        """Begin to forward a local port (0: any) to a pod's port. The first line that it prints names the local one."""
        words = [
            "port-forward",
            "--namespace",
            namespace,
            "--address",
            "127.0.0.1",
            f"pod/{pod}",
            f"{local or ''}:{port}",
        ]
        return _start([*self._command, *words], stdin=subprocess.DEVNULL)

    def watch(self, path: str) -> "subprocess.Popen[str]":
        """Begin to watch a collection: one JSON event per line."""
        words = [*self._command, "get", "--raw", f"{path}{'&' if '?' in path else '?'}watch=1"]
        return _start(words, stdin=subprocess.DEVNULL)


def _start(words: Sequence[str], *, stdin: int | None) -> "subprocess.Popen[str]":
    try:
        return subprocess.Popen(  # noqa: S603  the user's own command, no shell
            words, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    except FileNotFoundError as error:
        raise PunctualError("kubectl is not there: install it, or put it into PATH") from error


class Follower:
    """Several watches at once; use it as ``with Follower(kubectl, namespace=…) as follower``.

    ``namespace`` None: all namespaces. ``pods``: also the pods of chunks, which a record needs and a screen does not.
    Only then the user needs the right to watch pods. ``pools``: also the pools and target rates; ``unread`` has the
    kinds of these that the user may not watch. The changes are in ``news``. An exception there has ended a watch for
    good.
    """

    def __init__(self, kubectl: Kubectl, *, namespace: str | None, pods: bool = True, pools: bool = False) -> None:
        self.news: queue.Queue[Change | Reset | PunctualError] = queue.Queue()
        self._kubectl = kubectl
        scope = f"namespaces/{namespace}/" if namespace else ""
        self._paths = {"DivisibleJob": JOBS.format(scope=scope)}
        if pods:
            self._paths["Pod"] = PODS.format(scope=scope)
        if pools:
            self._paths |= {"Pool": POOLS, "TargetRate": RATES.format(scope=scope)}
        self.unread: set[str] = set()
        self._over = threading.Event()
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._threads = [threading.Thread(target=self._follow, args=(kind,), daemon=True) for kind in self._paths]

    def __enter__(self) -> Self:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End all watches."""
        self._over.set()
        for process in self._processes.values():
            process.terminate()
        for thread in self._threads:
            thread.join(5)

    def wait(self, timeout: float) -> Sequence[Change | Reset]:
        """Return what is new, after at most ``timeout`` seconds. Raises the error that ended a watch for good."""
        found: list[Change | Reset] = []
        try:
            item = self.news.get(timeout=timeout)
            while True:
                if isinstance(item, PunctualError):
                    raise item
                found.append(item)
                item = self.news.get_nowait()
        except queue.Empty:
            return found

    def _follow(self, kind: str) -> None:
        answered = False
        while not self._over.is_set():
            try:
                process = self._processes[kind] = self._kubectl.watch(self._paths[kind])
            except PunctualError as error:
                self.news.put(error)
                return
            if self._over.is_set():  # set between the two lines: __exit__ has not seen this process
                process.terminate()
            self.news.put(Reset(kind))
            with process:
                answered = self._read(kind, process) or answered
                process.terminate()  # it may have more to say than can be read
                said = process.stderr.read().strip() if process.stderr else ""
            if not answered and not self._over.is_set() and process.returncode:
                if kind in OPTIONAL and "Forbidden" in said:
                    self.unread.add(kind)
                else:
                    self.news.put(ClusterError(_of_a_watch(said)))
                return
            self._over.wait(AGAIN)

    def _read(self, kind: str, process: "subprocess.Popen[str]") -> bool:
        """Put events into the queue until the watch ends; return whether there were any."""
        any_ = False
        for line in process.stdout or ():
            try:
                event = json.loads(line)
            except ValueError:  # cut off in the middle
                break
            if event.get("type") == "ERROR":
                break
            any_ = True
            if event.get("type") in {"ADDED", "MODIFIED", "DELETED"}:
                self.news.put(Change(kind, event["type"], event["object"]))
        return any_


def _of_a_watch(said: str) -> str:
    if "could not find the requested resource" in said or "NotFound" in said:
        return "the cluster does not know divisiblejobs: install the chart first (charts/punctual)"
    return plainly(said) or "kubectl ended the watch without a message"
