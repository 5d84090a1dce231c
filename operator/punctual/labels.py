"""Labels and annotations of Punctual's objects. A leaf: the edge, the command line and the views read them."""

from typing import Final

GROUP: Final = "punctual.dev"
POOL_LABEL: Final = f"{GROUP}/pool"
JOB_LABEL: Final = f"{GROUP}/job"
JOB_UID_LABEL: Final = f"{GROUP}/job-uid"
KIND_LABEL: Final = f"{GROUP}/kind"
BEGIN: Final = f"{GROUP}/begin"
END: Final = f"{GROUP}/end"
ATTEMPT: Final = f"{GROUP}/attempt"
EPOCH: Final = f"{GROUP}/epoch"
WORK: Final = f"{GROUP}/work"
"""Annotation with the name of the container that does the work: the template's first. A webhook may put others before
it, so the order of a pod's containers tells nothing."""
OFFERED_END: Final = f"{GROUP}/offered-end"
PLACEHOLDER: Final = f"{GROUP}/placeholder-of"
"""Label of a placeholder: uid of its pool."""
PROCESSOR: Final = f"{GROUP}/processor"
"""Annotation of a placeholder, and of a chunk's pod if its processor has extended resources: the processor's size."""
TURN: Final = f"{GROUP}/fetch"
CPU_MANAGER: Final = f"{GROUP}/cpu-manager"
"""Node label with which an administrator declares the CPU manager policy (``static``). The API does not show it."""
LEADER_LABEL: Final = f"{GROUP}/leader"
"""Label of the pod of the replica that leads: ``true``."""

# of ordinary Jobs

GATE: Final = f"{GROUP}/chunk"
"""Scheduling gate of the pods of a Job with a deadline: each waits for its processor."""
OPENED: Final = f"{GROUP}/opened"
"""Annotation of such a Job: its uid, from when the operator lets it begin until its promise is refused. A Job that is
suspended then is so by its user."""
DEADLINE: Final = f"{GROUP}/deadline"
DEADLINE_TIME: Final = f"{GROUP}/deadline-time"
COST_PER_UNIT: Final = f"{GROUP}/cost-per-unit"
PROFILE: Final = f"{GROUP}/profile"
START_ANYWAY: Final = f"{GROUP}/start-anyway"
STATE: Final = f"{GROUP}/state"
ETA: Final = f"{GROUP}/eta"
SLACK: Final = f"{GROUP}/slack"
OFFER: Final = f"{GROUP}/offer"
MESSAGE: Final = f"{GROUP}/message"
