"""Reservations: their windows, computed, requested from the Pools, and written into the statuses."""
