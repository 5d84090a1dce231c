"""What profiles learn from chunks that have ended: costs of jobs, and speeds of the classes of nodes. Pure."""
