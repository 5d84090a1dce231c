"""Feedback control: learns the effect of an input, and sets the input to reach a target. Pure."""
