"""Pools: started with all that is on record, stopped, and halted while their status cannot be written."""
