"""``punctual-agent``: settings from the environment, one loop, an orderly shutdown.

    NODE_NAME       this node's name (downward API)                         required
    OPERATOR_URL    https:// address of the operator's service              required
    TOKEN_FILE      projected token with the operator's audience            /var/run/secrets/punctual/token
    CA_FILE         CA certificate(s) that verify the operator's            /etc/punctual/ca/ca.crt
    CGROUP_ROOT     the host's /sys/fs/cgroup, writable                     /sys/fs/cgroup
    PODS_ROOT       the kubelet's pods folder, read-only is enough          /var/lib/kubelet/pods
    STATE_DIR       a folder shared with the watchdog only                  /run/punctual
    NODE_STATE_DIR  a folder of the node, for what users' pods had before   STATE_DIR
    METRICS_PORT    port of /metrics and /healthz; 0: any free port         9464
    METRICS_ADDRESS address of /metrics and /healthz                        all
    LEASE           seconds without a heartbeat until the watchdog acts     5
    PATIENCE        seconds without an answer until pods get rest caps      60
    TIMEOUT         seconds that one step of a request may take             3
    LOG_LEVEL       DEBUG, INFO, WARNING, ERROR                             INFO

``punctual-agent watchdog`` is the other container of the pod: ``punctual_agent.watchdog``.
"""

import faulthandler
import json
import logging
import os
import queue
import resource
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from punctual_agent import watchdog
from punctual_agent.cgroup import ROOT, CgroupError, Hierarchy
from punctual_agent.progress import PODS
from punctual_agent.state import LEASE, State

log = logging.getLogger(__name__)

OPEN_FILES: Final = 16_384


class SettingError(Exception):
    """A variable is missing or invalid. The message names it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings, read once from the environment."""

    node: str
    operator: str
    token_file: Path
    ca_file: Path
    cgroup_root: str
    pods_root: str
    state_dir: str
    node_state_dir: str
    metrics_port: int
    metrics_address: str
    lease: float
    patience: float
    timeout: float
    log_level: str

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings from the environment. Raises SettingError."""
        return cls(
            node=_required(environ, "NODE_NAME"),
            operator=_https(environ, "OPERATOR_URL"),
            token_file=Path(environ.get("TOKEN_FILE") or "/var/run/secrets/punctual/token"),
            ca_file=Path(environ.get("CA_FILE") or "/etc/punctual/ca/ca.crt"),
            cgroup_root=(environ.get("CGROUP_ROOT") or ROOT).rstrip("/"),
            pods_root=environ.get("PODS_ROOT") or PODS,
            state_dir=environ.get("STATE_DIR") or watchdog.STATE_DIR,
            node_state_dir=environ.get("NODE_STATE_DIR") or environ.get("STATE_DIR") or watchdog.STATE_DIR,
            metrics_port=int(_number(environ, "METRICS_PORT", 9464, least=0, most=65535)),
            metrics_address=environ.get("METRICS_ADDRESS") or "",
            lease=_number(environ, "LEASE", LEASE, least=2, most=3600),
            patience=_number(environ, "PATIENCE", 60, least=2, most=86400),
            timeout=_number(environ, "TIMEOUT", 3, least=0.1, most=60),
            log_level=_level(environ, "LOG_LEVEL"),
        )


def _required(environ: Mapping[str, str], name: str) -> str:
    if value := environ.get(name):
        return value
    raise SettingError(f"{name} is not set: set it in the agent's environment")


def _https(environ: Mapping[str, str], name: str) -> str:
    value = _required(environ, name)
    if not value.startswith("https://"):
        raise SettingError(f"{name} is {value!r}: set it to an https:// address")
    return value


def _number(environ: Mapping[str, str], name: str, default: float, *, least: float, most: float) -> float:
    text = environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise SettingError(f"{name} is {text!r}: set it to a number from {least:g} to {most:g}")
    return value


def _level(environ: Mapping[str, str], name: str) -> str:
    value = (environ.get(name) or "INFO").upper()
    if value not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise SettingError(f"{name} is {value!r}: set it to DEBUG, INFO, WARNING or ERROR")
    return value


class JsonLines(logging.Formatter):
    """Formats a log record as one JSON object: level, event, and the fields of ``extra``."""

    _OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line."""
        line = {"time": round(record.created, 3), "level": record.levelname.lower(), "event": record.getMessage()}
        line |= {key: value for key, value in vars(record).items() if key not in self._OWN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def run(settings: Settings) -> None:
    """Tick and report each second until SIGTERM, then leave all pods at their rest caps.

    Raises CgroupError or OSError if the agent cannot work (no hierarchy, no state folder, port in use).
    """
    # imported late: the watchdog starts by the same command and needs none of these
    from punctual_agent.agent import Agent  # noqa: PLC0415
    from punctual_agent.metrics import AgentMetrics, serve  # noqa: PLC0415
    from punctual_agent.operator_client import Answered, Exchange, ExchangeError, Exchanger  # noqa: PLC0415
    from punctual_agent.phases import PhaseThread  # noqa: PLC0415
    from punctual_agent.rounds import Rounds  # noqa: PLC0415

    _allow_open_files()
    inbox: queue.SimpleQueue[Answered | BaseException | None] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: inbox.put(None))  # SimpleQueue.put is safe in a signal handler
    metrics = AgentMetrics()
    hierarchy = Hierarchy(settings.cgroup_root)
    agent = Agent(
        node=settings.node,
        hierarchy=hierarchy,
        pods_root=settings.pods_root,
        state=State(settings.state_dir, settings.node_state_dir),
        metrics=metrics,
        now=time.monotonic(),
        lease=settings.lease,
        patience=settings.patience,
    )
    server = serve(
        metrics,
        lambda: time.monotonic() - agent.ticked <= settings.lease,
        port=settings.metrics_port,
        address=settings.metrics_address,
    )
    exchanger = Exchanger(
        Exchange(settings.operator, token_file=settings.token_file, ca_file=settings.ca_file, timeout=settings.timeout),
        inbox,
    )
    exchanger.start()
    steering = PhaseThread(agent.phases, inbox.put)
    steering.start()
    started = {"node": settings.node, "instance": agent.instance, "port": server.server_port}
    started |= {"cgroup": hierarchy.version, "driver": hierarchy.driver}
    log.info("agent_started", extra=started | agent.capabilities._asdict())
    rounds = Rounds(agent, exchanger.offer, metrics, time.monotonic())
    while True:
        # ends a process that hangs for any reason, which frees the node's lock for the watchdog
        faulthandler.dump_traceback_later(settings.lease, exit=True)
        following = rounds.look(time.monotonic())
        try:
            said = inbox.get(timeout=max(following - time.monotonic(), 0))
        except queue.Empty:
            continue
        if said is None:
            break
        if not isinstance(said, Answered | ExchangeError):
            raise said
        rounds.hear(said, time.monotonic())
    agent.rest()
    steering.join(settings.lease)
    log.info("agent_ended")


def _allow_open_files() -> None:
    """Raise the soft limit of open files: ten cgroup files per pod are kept open, and a node may have many pods."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        enough = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))


def main(argv: list[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the command. Returns the exit status.

    The status is 2 for invalid settings and 1 if the agent cannot work.
    """
    words = sys.argv[1:] if argv is None else argv
    if words == ["watchdog"]:
        return watchdog.main(environ)
    if words:
        print(f"usage: punctual-agent [watchdog]; settings come from the environment\n{__doc__}", file=sys.stderr)  # noqa: T201
        return 2
    try:
        settings = Settings.read(environ)
    except SettingError as error:
        print(f"punctual-agent: {error}", file=sys.stderr)  # noqa: T201
        return 2
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    try:
        run(settings)
    except (CgroupError, OSError) as error:
        log.exception("agent_failed", extra={"error": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
