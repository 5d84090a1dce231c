"""The life of a chunk, as a Pool and the control of guests share it: its state, its transitions, and the ledger."""
