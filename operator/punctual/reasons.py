"""Every reason that a user can meet, defined once for conditions, events, metric labels, CLI and docs.

One constant per cause, in UpperCamelCase as in Kubernetes. A test compares this module with ``docs/reasons.md``.
"""

from typing import Final

# Admission
FEASIBLE: Final = "Feasible"  # the deadline is promised
GUEST: Final = "Guest"  # no deadline: it runs on what the nodes' own work leaves
ADMITTED_STATISTICALLY: Final = "AdmittedStatistically"  # costs are estimates: most such deadlines are kept
DRY_RUN: Final = "DryRun"  # it could be promised; nothing was planned (spec.dryRun)
MEASURING: Final = "Measuring"  # pilot chunks measure the cost of a unit
INFEASIBLE_CAPACITY: Final = "InfeasibleCapacity"  # too few processors are free before the deadline
INFEASIBLE_STARTUP: Final = "InfeasibleStartup"  # set-up costs and margin alone exceed the time to the deadline
POD_FITS_NO_NODE: Final = "PodFitsNoNode"  # the template's rules about nodes exclude every node of the pool
SHARE_USED_UP: Final = "ShareUsedUp"  # the promise would take more of the pool than the share of the namespace
DEADLINE_TOO_FAR: Final = "DeadlineTooFar"  # the deadline lies beyond the pool's promiseHorizon
INFEASIBLE_RESERVATION: Final = "InfeasibleReservation"  # no such window is free, or a promised job would no longer fit
NOT_ALLOWED: Final = "NotAllowed"  # the pool does not serve this namespace
TOO_FAR_AHEAD: Final = "TooFarAhead"  # a window ends after the horizon of the pool's reservations
POOL_NOT_FOUND: Final = "PoolNotFound"
POOL_DELETED: Final = "PoolDeleted"  # the pool is being deleted: it takes no new jobs
PROFILE_NOT_FOUND: Final = "ProfileNotFound"
RESERVATION_NOT_FOUND: Final = "ReservationNotFound"
RESERVATION_REFUSED: Final = "ReservationRefused"  # the reservation that a job names was refused, or is of another pool
INVALID_SPEC: Final = "InvalidSpec"  # the schema accepted it, the converter did not; the message names the field
POD_REFUSED: Final = "PodRefused"  # a dry-run create of the chunk pod was refused (quota, LimitRange, Pod Security)
POD_TOO_LARGE: Final = "PodTooLarge"  # the pods request more than a processor, or what no node has for each processor
NOT_SUSPENDED: Final = "NotSuspended"  # a Job with a deadline was not created with spec.suspend: true
NAME_TAKEN: Final = "NameTaken"  # a DivisibleJob that is not the Job's has its name
ANSWER_DELAYED: Final = "AnswerDelayed"  # a check before the promise, or the Pool, has not answered yet
SUSPENDED: Final = "Suspended"  # the promise was given up for spec.suspend

# After the promise
ON_TRACK: Final = "OnTrack"
OVERRUN: Final = "Overrun"  # the declared cost was too low; the job continues on leftover capacity
CAPACITY_LOST: Final = "CapacityLost"  # nodes were lost, and not every promise still fits
LATE: Final = "Late"  # the forecast is after the deadline
LOOP_SATURATED: Final = "LoopSaturated"  # no CPU limit brings a chunk back to its line, and no processor can help
CHUNK_FAILED: Final = "ChunkFailed"  # a chunk failed by its own error, more often than chunkRetries
IMAGE_UNAVAILABLE: Final = "ImageUnavailable"  # an image cannot be pulled; not yet counted as a failure of the work
STALLED: Final = "Stalled"  # neither progress nor CPU use for stallTimeout
NOT_STARTED: Final = "NotStarted"  # pods of the job do not start: not placed, no image, no configuration
HELPER_ENDED: Final = "HelperEnded"  # a container still ran when the work beside it had ended; it was ended
HELPER_RUNS: Final = "HelperRuns"  # a container of a Job's pod still runs after the work, so the pod goes on
HELPER_FAILED: Final = "HelperFailed"  # a container failed or was out of memory; the work has succeeded
NODE_LOST: Final = "NodeLost"
STATUS_REFUSED: Final = "StatusRefused"  # the API server refused a status of the object
RESULT_LOST: Final = "ResultLost"  # the API server refused the result that a chunk left for the reduce step
RESULT_CUT: Final = "ResultCut"  # a result is longer than the kubelet passes on, so only a part arrived
RESULT_NOT_TEXT: Final = "ResultNotText"  # a result has bytes that are not UTF-8, so other characters arrived
INPUT_UNAVAILABLE: Final = "InputUnavailable"  # the input's server is not up, busy, or silent
LOST_PODS_COUNT: Final = "LostPodsCount"  # pods of a Job that are lost with a node count against its backoffLimit
JOB_FAILED: Final = "JobFailed"  # the Job with the pods of a job has failed, as its own limits say
INPUT_CHANGED: Final = "InputChanged"  # a chunk read another version of the input than the job began with
FILE_FAULT: Final = "FileFault"  # a file that a worker wrote in PUNCTUAL_DIR is not a count; the last good value stays
STATUS_UNREADABLE: Final = "StatusUnreadable"  # the status is not one that the operator writes
PROMISE_LOST: Final = "PromiseLost"  # the API server's store was set back to a time before the promise

# Reservations
ACTIVE: Final = "Active"  # a window has begun and has not ended
NOT_ACTIVE: Final = "NotActive"

# Target rates
RATES_DO_NOT_FIT: Final = "RatesDoNotFit"  # on a node, the rates take more CPU than the pods request
POD_OUTSIDE_POOL: Final = "PodOutsidePool"  # a selected pod is on a node of another pool, or of none
POD_SHARED: Final = "PodShared"  # an older TargetRate selects one of the pods
ON_TARGET: Final = "OnTarget"
BALANCED: Final = "Balanced"  # the slices are those for the load of the nodes' own work
SETTLING: Final = "Settling"  # another period or slice is tried
UNREACHABLE: Final = "Unreachable"  # no period and slice hold the rate
NO_PODS: Final = "NoPods"  # no selected pod runs
NO_PROGRESS: Final = "NoProgress"  # no selected pod reports iterations: only its CPU is held
NOT_COUNTED: Final = "NotCounted"  # Prometheus does not say how many iterations a pod has done
COUNT_FELL: Final = "CountFell"  # the iterations of a pod went back
CAP_NOT_IN_FORCE: Final = "CapNotInForce"  # a pod's limit is not the one asked for, or its agent is silent
MEMORY_SHORT: Final = "MemoryShort"  # memory of an aligned pod is short: all have the least CPU for a while
SLICES_DO_NOT_FIT: Final = "SlicesDoNotFit"  # on a node, no moments are free for the slices of an aligned application
SLICE_TOO_LONG: Final = "SliceTooLong"  # the slice is longer than maxSlice of the pool at each allowed period
ALIGNED: Final = "Aligned"  # the slices of all pods begin at the same moments
STEERING: Final = "Steering"  # pods are brought onto the grid, or it is not known when their slices begin
PHASE_OFF: Final = "PhaseOff"  # the slices of a pod begin at other moments than those of the others
CLOCK_UNCERTAIN: Final = "ClockUncertain"  # an agent does not know the leader's clock well enough to steer
SLICES_NOT_FILLED: Final = "SlicesNotFilled"  # a pod does not use its slices up: it blocks, or other pods take its CPU

# Guests on busy nodes
GUEST_STAYS: Final = "GuestStays"  # a chunk goes on beside the node's own work
GUEST_PAUSED: Final = "GuestPaused"  # a chunk has its least CPU while its node is busy
GUEST_MOVES: Final = "GuestMoves"  # a chunk hands its rest to another node
GUEST_LEAVES: Final = "GuestLeaves"  # a chunk hands its rest back, and no node is chosen for it yet
GUEST_PREVIEW: Final = "GuestPreview"  # what would be done with a chunk; nothing is

# Ends
COMPLETED: Final = "Completed"
DEADLINE_MISSED: Final = "DeadlineMissed"
REDUCE_FAILED: Final = "ReduceFailed"

# Edits
APPLIED: Final = "Applied"
EDIT_REFUSED: Final = "EditRefused"  # a changed spec would break a promise; the old spec stays in force

# Profile
SET_BY_HAND: Final = "SetByHand"  # spec.perUnit says what a unit costs
LEARNED: Final = "Learned"  # what a unit costs was learned from chunks
NOTHING_LEARNED: Final = "NothingLearned"  # neither: too few chunks have ended

# Pool
READY: Final = "Ready"
NO_NODES: Final = "NoNodes"  # no ready node matches nodeSelector
NODES_OVERLAP: Final = "NodesOverlap"  # a matching node belongs to an older pool
NO_OVERLAP: Final = "NoOverlap"
STATIC_CPU_MANAGER: Final = "StaticCPUManager"  # such nodes are excluded: the operator cannot set their quotas
POOL_STOPPED: Final = "PoolStopped"  # its status cannot be written, so nothing is decided in it
EPOCHS_FELL_BACK: Final = "EpochsFellBack"  # the API server's store was set back below what agents have heard
NODE_TAINTED: Final = "NodeTainted"  # cordoned, or tainted by others: only for jobs that tolerate the taint
UNINSTALLED: Final = "Uninstalled"  # Punctual is uninstalled while pods of the pool's jobs run
