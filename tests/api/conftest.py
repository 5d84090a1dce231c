"""A real API server for the tests of this folder: `kubeconfig` is all they need to ask for."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from kinds import teach
from proxy import MAKING
from rights import Installed, installed

from punctual.kube.cluster.client import ApiClient

ROOT = Path(__file__).parents[2]
APISERVER = ROOT / "hack" / "apiserver"

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is here as `api`; time tests without the server's start, as a machine's first is built for minutes."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("api")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300, func_only=True))  # for what hangs, not for what is slow


@pytest.fixture(scope="session")
def kubeconfig() -> Iterator[Path]:
    """Path of an admin's kubeconfig for an API server of this run alone, with our CRDs established.

    One server serves the whole run: take a namespace per test, and unique names for cluster-scoped objects. There are
    no controllers: nobody schedules pods, fills namespaces or collects children of what is deleted.
    """
    name = f"tests-{os.getpid()}"
    try:
        path = Path(subprocess.run([APISERVER, "up", "--name", name], check=True, stdout=-1, text=True).stdout.strip())
        teach(f"{_folder()}/kubectl", path)
        yield path
    finally:
        subprocess.run([APISERVER, "down", "--name", name], check=True)


@pytest.fixture(scope="session")
def kubectl(kubeconfig: Path) -> Kubectl:
    """kubectl as a function: ``kubectl("get", "pools")`` answers with a CompletedProcess; ``input=`` is its stdin."""
    return _kubectl(kubeconfig)


def _folder() -> str:
    """Return where kubectl is."""
    return subprocess.run([APISERVER, "bin"], check=True, stdout=-1, text=True).stdout.strip()


def _kubectl(kubeconfig: Path) -> Kubectl:
    folder = _folder()

    def run(*arguments: str, check: bool = False, **options: str) -> subprocess.CompletedProcess[str]:
        command = [f"{folder}/kubectl", f"--kubeconfig={kubeconfig}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
        assert not check or done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def environment(kubeconfig: Path) -> dict[str, str]:
    """Environment of the command line as an administrator."""
    return {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{_folder()}:{os.environ['PATH']}"}


@pytest.fixture
def plan(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``punctual plan`` of a manifest, as a function: ``plan(manifest, "-n", "default")``; ``env=``: another user's."""
    command = [Path(sys.executable).with_name("punctual"), "plan", "-"]

    def run(
        manifest: dict[str, object], *words: str, env: dict[str, str] = environment
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *words], input=json.dumps(manifest), env=env, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture
def plugin(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``kubectl punctual …`` as a function, with kubectl's own way to the plugin; ``env=``: another user's."""
    here = Path(sys.executable).parent

    def run(*words: str, env: dict[str, str] = environment, stdin: object = None) -> subprocess.CompletedProcess[str]:
        path = f"{here}:{env['PATH']}"
        return subprocess.run(
            ["kubectl", *words], input=None if stdin is None else json.dumps(stdin), env={**env, "PATH": path},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    return run


@pytest.fixture
async def client(kubeconfig: Path) -> AsyncIterator[ApiClient]:
    """An admin's `ApiClient`, open."""
    async with ApiClient(str(kubeconfig), deadline=60) as client:
        yield client


@pytest.fixture
async def namespace(client: ApiClient) -> str:
    """Name of a namespace of the test's own."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    await client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
async def release(client: ApiClient, kubeconfig: Path, namespace: str, tmp_path: Path) -> AsyncIterator[Installed]:
    """The chart's rights and policies in a namespace beside the test's; `own` is the kubeconfig of the operator."""
    system = f"{namespace}-system"
    await client.create("/api/v1/namespaces", {"metadata": {"name": system}})
    async with installed(client, kubeconfig, system) as made:
        made.own = await made.account("punctual-operator", tmp_path / "operator.kubeconfig")
        yield made


Eventually = Callable[..., Awaitable[None]]


@pytest.fixture
def eventually() -> Eventually:
    """``await eventually(lambda: …)``: wait until it holds, fail when it does not in so many seconds."""

    async def wait(holds: Callable[[], object], *, within: float = 60.0) -> None:
        async with asyncio.timeout(within):
            while not holds():  # noqa: ASYNC110  it is the API server's state, nobody sets an event
                await asyncio.sleep(0.01)

    return wait


class Tunnel:
    """A way to the API server that a test can stall (bytes stop, connections stay) or cut (connections end)."""

    def __init__(self, kubeconfig: Path, to: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        self._config = config
        self._target = config["clusters"][0]["cluster"]["server"].removeprefix("https://").split(":")
        self.kubeconfig = to
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self.refused = 0
        """Connections that were not taken."""
        self._pipes: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self._config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        self.kubeconfig.write_text(json.dumps(self._config))

    async def close(self) -> None:
        self._server.close()
        await self.cut()

    def stall(self) -> None:
        """Nothing goes through any more, old connections or new."""
        self._flowing.clear()

    def resume(self) -> None:
        """All goes through again, what waited too."""
        self._flowing.set()
        self._refusing = False

    async def cut(self) -> None:
        """End all connections and take no new ones."""
        self._refusing = True
        for _ in range(MAKING):  # those that are accepted and not made yet
            await asyncio.sleep(0)
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._pipes.add(task := asyncio.current_task())
        task.add_done_callback(self._pipes.discard)
        ends = [writer]
        try:
            if self._refusing:
                self.refused += 1
                return
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            ends.append(far_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer))
                group.create_task(self._pump(far_reader, writer))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in ends:
                end.transport.abort()
            for end in ends:  # the wait may be cancelled, by a cut
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            await self._flowing.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError  # ends the other direction too


@pytest.fixture
async def tunnel(kubeconfig: Path, tmp_path: Path) -> AsyncIterator[Tunnel]:
    """A `Tunnel` that is open; its ``kubeconfig`` leads through it."""
    tunnel = Tunnel(kubeconfig, tmp_path / "tunnel")
    await tunnel.open()
    yield tunnel
    await tunnel.close()
