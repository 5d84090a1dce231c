"""Stages of a Pool's step: they take events in, decide, plan, dispatch and supervise, on one shared state."""
