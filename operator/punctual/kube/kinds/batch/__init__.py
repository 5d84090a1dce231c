"""Ordinary Jobs with a deadline: what the operator makes of them, and what it tells them."""
