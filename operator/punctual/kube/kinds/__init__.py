"""Punctual's kinds: a folder for each, with all that a leader's term does for objects of that kind.

No kind imports another. What one means to another is a `Signal`, and facts are read from the stores (`kube.known`).
"""
