"""The operator as a process of its own that can be killed at any moment.

Forked from a server that has imported it all: a process of its own for a tenth of the CPU, so that a test can afford a
hundred of them.
"""

import asyncio
import multiprocessing
import os
import signal
import sys

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["punctual.kube.main", "pytest"])  # pytest: the main module, which each fork looks at


def _operate(env, log):
    from punctual.kube.main import main

    os.environ.clear()
    os.environ.update(env)
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.exit(main())


class Replica:
    """One replica, begun. What it says goes to ``log``, behind what another said there."""

    def __init__(self, kubeconfig, namespace, log, **more):
        self.log = log
        ports = {"PUNCTUAL_REPORT_PORT": "0", "PUNCTUAL_METRICS_PORT": "0"}
        # the claim: beside other tests' operators on the same server
        spaces = {"POD_NAMESPACE": namespace, "PUNCTUAL_CLAIM_NAMESPACE": namespace}
        env = {**os.environ, "KUBECONFIG": str(kubeconfig), **spaces, **ports, **more}
        self._process = _FORKS.Process(target=_operate, args=(env, str(log)), daemon=True)
        self._process.start()

    @property
    def status(self):
        """Its exit status, None while it runs."""
        return self._process.exitcode

    def kill(self):
        """Send it a signal that it cannot catch: nothing is flushed, the Lease is not released."""
        self._process.kill()

    def freeze(self):
        """Stop it where it is: it knows nothing of the time that passes."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self):
        """Let it go on where it was frozen."""
        os.kill(self._process.pid, signal.SIGCONT)

    async def end(self, within=120.0):
        """Stop it in good order; return its exit status."""
        self._process.terminate()
        return await self.ended(within)

    async def ended(self, within=120.0):
        """Wait until it has ended; return its exit status."""
        await asyncio.to_thread(self._process.join, within)
        return self.status
