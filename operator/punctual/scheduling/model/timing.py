"""Seconds that the operator, pods and agents need to react to each other. Plans allow for them."""

LOOK = 0.5
"""Seconds between two supervisions of all running chunks: their findings have time scales of seconds.

A last supervision in the future means that the API server's clock was set back; it is ignored.
"""
GRACE = 2.0
"""Grace period, in seconds, of a pod that is told to end. Its work no longer counts, and its processor is needed."""
LEAVE = GRACE + 2.0
"""Seconds from the deletion of a pod until its processor is certainly empty, on a cluster."""
BLOCKED = 10.0
"""Seconds without new pods on a node where a pod did not fit, or for a job with a refused pod."""
PATIENCE = 2.0
"""Seconds for which an offer may stay unanswered when its processor is needed."""
NOTICE = PATIENCE + LOOK + GRACE
"""Seconds in which a leftover chunk leaves its processor even if it answers no offer and ignores its end."""
SOON = PATIENCE + GRACE
"""Seconds after an offer within which a pod that ignores its end is gone; the plan allows for that time.

A chunk that has answered and reaches its end within that time delays nothing.
"""
WARNING = SOON + LOOK + GRACE
"""Seconds in which a leftover chunk has left its processor even if it answers an offer and does not reach its end."""
ASKED = SOON + LOOK
"""Seconds before its processor must be empty in which a chunk that would run on is offered an end.

A chunk that answers has then been seen to end: a worker exits only when its answer has been read (`punctual.worker`).
"""
OVERDUE = 1.0
"""Seconds after its planned end, or half the margin if that is shorter, from which a chunk is late: ends are seen late.

A margin of ``OVERDUE + LOOK + NOTICE`` is enough to end a late chunk and to run, in time, what is planned behind it.
"""
LEFTOVER_CHUNK = 30.0
"""Seconds of work in a leftover chunk: little is lost when it must leave."""
