"""Pure scheduling core: takes events, returns actions, uses no I/O and no clock.

``Pool`` is its only entry point. Each module owns one concept.
"""
