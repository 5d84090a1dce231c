"""Reservations: when their windows are, which of them a Pool is asked about, how each stands. Pure, as `scheduling`."""
