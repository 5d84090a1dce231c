"""The agent's steps: what is due by the clock, and what follows from an answer. They wait for nothing."""

import logging
from collections.abc import Callable
from typing import Final

from punctual.wire import Report
from punctual_agent.agent import Agent
from punctual_agent.metrics import AgentMetrics
from punctual_agent.operator_client import Answered, ExchangeError

log = logging.getLogger(__name__)

EVERY: Final = 1.0
"""Seconds between two ticks. Between them, the agent glances at guests once."""


class Rounds:
    """An agent's ticks, glances and answers, one after the other."""

    def __init__(self, agent: Agent, offer: Callable[[Report], None], metrics: AgentMetrics, now: float) -> None:
        """``offer`` takes a report that the operator is to get, and returns at once."""
        self._agent, self._offer, self._metrics = agent, offer, metrics
        self._following, self._whole = now, True
        self._trouble = ""

    def look(self, now: float) -> float:
        """Tick and report, or only glance at guests, if that is due; return when the next look is."""
        if now < self._following:
            return self._following
        if self._whole:
            with self._metrics.look.time():
                report = self._agent.tick(now)
            self._offer(report)
        else:
            self._agent.glance(now)
        self._whole = not self._whole
        self._following = max(self._following + EVERY / 2, now)  # what is late is not repeated
        return self._following

    def hear(self, said: Answered | ExchangeError, now: float) -> None:
        """Take what came of an exchange."""
        if isinstance(said, ExchangeError):
            result = said.kind
        else:
            result = "answered" if self._agent.hear(said, now) else "lowerEpoch"
        self._metrics.exchanges.labels(result).inc()
        if result != self._trouble:
            self._trouble = result
            log.log(
                logging.INFO if result == "answered" else logging.WARNING,
                "operator_exchange",
                extra={"result": result, "error": str(said) if isinstance(said, ExchangeError) else None},
            )
