"""Profiles: what chunks have cost, and the speeds of the classes of nodes."""
