"""The promise itself: events in, actions out, no I/O and no clock.

``Pool`` is the only door; the modules beside it each own one noun.
"""
