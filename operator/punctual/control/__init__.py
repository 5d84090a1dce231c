"""Feedback: what a process does with its input, and the input that brings it where it should be. Pure."""
