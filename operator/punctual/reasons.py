"""Every reason a user can meet, once: conditions, events, metric labels, CLI and docs all take it from here.

One constant per cause, UpperCamelCase as Kubernetes has it. A test compares this module with ``docs/reasons.md``.
"""

from typing import Final

# Admission
FEASIBLE: Final = "Feasible"  # the deadline is promised
ADMITTED_STATISTICALLY: Final = "AdmittedStatistically"  # costs are estimates: most such deadlines are kept
DRY_RUN: Final = "DryRun"  # it could be promised; nothing was booked (spec.dryRun)
MEASURING: Final = "Measuring"  # pilot chunks are finding out what a unit costs
INFEASIBLE_CAPACITY: Final = "InfeasibleCapacity"  # processors are too few or too busy before the deadline
INFEASIBLE_STARTUP: Final = "InfeasibleStartup"  # setup costs and margin alone take longer than the deadline leaves
INFEASIBLE_RESERVATION: Final = "InfeasibleReservation"  # no such window is free, or a promised job would fit no more
NOT_ALLOWED: Final = "NotAllowed"  # the pool does not serve this namespace
TOO_FAR_AHEAD: Final = "TooFarAhead"  # a window ends behind the horizon of the pool's reservations
POOL_NOT_FOUND: Final = "PoolNotFound"
POOL_DELETED: Final = "PoolDeleted"  # the pool is being deleted: it takes no new jobs
PROFILE_NOT_FOUND: Final = "ProfileNotFound"
RESERVATION_NOT_FOUND: Final = "ReservationNotFound"
RESERVATION_REFUSED: Final = "ReservationRefused"  # the reservation that a job names was refused, or is another pool's
INVALID_SPEC: Final = "InvalidSpec"  # the schema let it through, the converter did not; the message names the field
POD_REFUSED: Final = "PodRefused"  # a dry-run create of the chunk pod was refused (quota, LimitRange, Pod Security)
ANSWER_DELAYED: Final = "AnswerDelayed"  # what is asked before a promise has no answer yet; the message tells what
SUSPENDED: Final = "Suspended"  # spec.suspend gave the promise up

# Life of a promise
ON_TRACK: Final = "OnTrack"
OVERRUN: Final = "Overrun"  # the declared cost was too low; goes on with leftover capacity
CAPACITY_LOST: Final = "CapacityLost"  # nodes went and not every promise fits any more
LATE: Final = "Late"  # the forecast is behind the deadline
CHUNK_FAILED: Final = "ChunkFailed"  # a chunk failed by its own doing, more often than chunkRetries
STALLED: Final = "Stalled"  # neither progress nor CPU use for stallTimeout
NODE_LOST: Final = "NodeLost"
STATUS_REFUSED: Final = "StatusRefused"  # the API server would not have what was to be written about the object
RESULT_LOST: Final = "ResultLost"  # the API server would not keep what a chunk left for the reduce step
RESULT_CUT: Final = "ResultCut"  # a chunk left more than the kubelet passes on: what came is a part of its result
INPUT_CHANGED: Final = "InputChanged"  # a chunk has seen another version of the input than the job began with
FILE_FAULT: Final = "FileFault"  # what a worker wrote in PUNCTUAL_DIR is no count; the last good value stands
STATUS_UNREADABLE: Final = "StatusUnreadable"  # what stands in the status is not what the operator writes

# Reservations
ACTIVE: Final = "Active"  # a window has begun and is not over
NOT_ACTIVE: Final = "NotActive"

# Ends
COMPLETED: Final = "Completed"
DEADLINE_MISSED: Final = "DeadlineMissed"
REDUCE_FAILED: Final = "ReduceFailed"

# Edits
APPLIED: Final = "Applied"
EDIT_REFUSED: Final = "EditRefused"  # a changed spec would break the promise or another's; the old one stands

# Pool
READY: Final = "Ready"
NO_NODES: Final = "NoNodes"  # no ready node matches nodeSelector
NODES_OVERLAP: Final = "NodesOverlap"  # a matching node belongs to an older pool
NO_OVERLAP: Final = "NoOverlap"
STATIC_CPU_MANAGER: Final = "StaticCPUManager"  # such nodes are left out: their quotas are not ours to set
POOL_STOPPED: Final = "PoolStopped"  # its status cannot be written: nothing is decided in it until it can
NODE_TAINTED: Final = "NodeTainted"  # such nodes are left out: cordoned, or tainted by somebody else
