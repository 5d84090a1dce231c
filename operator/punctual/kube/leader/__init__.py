"""A leader's term: it takes over the pools, passes them jobs and reservations, and carries out their decisions."""
