"""The modes of pods, one module each. A mode is a value: what a pod is to have, made anew by each set point.

Standard library only at run time: the watchdog reads the modes that were saved.
"""

from collections.abc import Mapping
from typing import Final

from punctual_agent.modes.application import ApplicationMode
from punctual_agent.modes.guest import GuestMode
from punctual_agent.modes.hold import HoldMode
from punctual_agent.modes.line import LineMode
from punctual_agent.modes.mode import Mode

MODES: Final[Mapping[str, type[Mode]]] = {mode.kind: mode for mode in (HoldMode, LineMode, ApplicationMode, GuestMode)}
"""By the kinds of the orders in :mod:`punctual.wire`."""
