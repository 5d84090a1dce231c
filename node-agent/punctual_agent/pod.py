"""The agent's state for one pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from punctual_agent.actuator import Held
from punctual_agent.cgroup import Throttling
from punctual_agent.modes.mode import Mode
from punctual_agent.progress import PodProgress


@dataclass(slots=True)
class Pod:
    """A pod that the operator has named or that has a volume ``punctual``."""

    uid: str
    progress: PodProgress
    seen: float
    """The time at which the pod last had a cgroup or a volume."""
    counted: Mapping[str, Throttling] | None
    """How it was throttled, by folder, at the last look. None: it had begun before the agent, and an earlier one
    may have counted it."""
    mode: Mode | None = None
    """None: no set point has named it."""
    job: str | None = None
    """The job that its last set point named."""
    named: bool = False
    """The operator's last answer named it."""
    looked: float | None = None
    """The time at which its files were last read."""
    over: bool = False
    """Its files are gone, and the last read of them is final."""
    held: Held = field(default_factory=Held)
    cpu: float = 0.0
    """The largest value of this counter, CPU seconds: a container's counter disappears with the container."""
    drift: int = 0
    error: str | None = None
    trouble: str | None = None
    """The last failed writes, so that each is told once."""
