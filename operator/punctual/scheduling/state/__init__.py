"""State of one pool in memory, and the statuses that are written of it: decides nothing, plans nothing."""
