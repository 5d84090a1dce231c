"""kubectl, which has the user's credentials: commands that end, and watches that do not.

The command line imports no Kubernetes client: kubectl knows every way to log in, and starts faster. A watch is
``kubectl get --raw …?watch=1`` read line by line in a thread; what comes is put into one queue for all of them. A watch
that ends is opened again, and says so with a ``Reset``: what it tells next is all that there is.
"""

import json
import queue
import subprocess
import threading
from collections.abc import Sequence
from typing import Self

from punctual.errors import ClusterError, PunctualError
from punctual.view.changes import Change, Json, Reset

JOBS = "/apis/punctual.dev/v1alpha1/{scope}divisiblejobs"
POOLS = "/apis/punctual.dev/v1alpha1/pools"
PODS = "/api/v1/{scope}pods?labelSelector=punctual.dev/job-uid"
AGAIN = 1.0
"""Seconds before a watch that ended is opened again."""


class Kubectl:
    """The user's kubectl on the user's cluster; ``context`` as in ``kubectl --context``."""

    def __init__(self, context: str | None = None) -> None:
        self._command = ["kubectl", *(["--context", context] if context else [])]

    def run(self, *words: str, stdin: str | None = None) -> str:
        """Return what a command prints; ClusterError with kubectl's own words where it fails."""
        try:
            done = subprocess.run(  # noqa: S603  the user's own command, no shell
                [*self._command, *words], input=stdin, capture_output=True, text=True, check=False
            )
        except FileNotFoundError as error:
            raise PunctualError("kubectl is not there: install it, or put it into PATH") from error
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}"
            raise ClusterError(f"kubectl {' '.join(words[:3])}: {said}")
        return done.stdout

    def get(self, *words: str) -> Json:
        """Return an object, or a list of them."""
        found: Json = json.loads(self.run("get", "-o", "json", *words))
        return found

    def namespace(self) -> str:
        """Return the namespace of the current context."""
        return self.run("config", "view", "--minify", "--output", "jsonpath={..namespace}").strip() or "default"

    def watch(self, path: str) -> "subprocess.Popen[str]":
        """Begin to watch a collection: one JSON event per line."""
        words = [*self._command, "get", "--raw", f"{path}{'&' if '?' in path else '?'}watch=1"]
        try:
            return subprocess.Popen(  # noqa: S603  as above
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        except FileNotFoundError as error:
            raise PunctualError("kubectl is not there: install it, or put it into PATH") from error


class Follower:
    """Several watches at once; use it as ``with Follower(kubectl, namespace=…) as follower``.

    ``namespace`` None: all of them. What they tell is in ``news``; an exception there ended a watch for good.
    """

    def __init__(self, kubectl: Kubectl, *, namespace: str | None) -> None:
        self.news: queue.Queue[Change | Reset | PunctualError] = queue.Queue()
        self._kubectl = kubectl
        scope = f"namespaces/{namespace}/" if namespace else ""
        self._paths = {"Pool": POOLS, "DivisibleJob": JOBS.format(scope=scope), "Pod": PODS.format(scope=scope)}
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
        """Return what is new, after at most ``timeout`` seconds; raises what ended a watch for good."""
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
            if self._over.is_set():  # between the two: nobody else would end it
                process.terminate()
            self.news.put(Reset(kind))
            with process:
                answered = self._read(kind, process) or answered
                process.terminate()  # it may have more to say than can be read
                said = process.stderr.read().strip() if process.stderr else ""
            if not answered and not self._over.is_set() and process.returncode:
                self.news.put(ClusterError(_plainly(said)))
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


def _plainly(said: str) -> str:
    if "could not find the requested resource" in said or "NotFound" in said:
        return "the cluster does not know divisiblejobs: install the chart first (charts/punctual)"
    return said or "the watch ended without a word"
