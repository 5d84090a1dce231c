"""Guests on capacity that a node's own work (its hosts) leaves: when one stays on a busy node, and when it moves."""
