"""One term of a leader: takeover, jobs, reservations and pools in, decisions carried out."""
