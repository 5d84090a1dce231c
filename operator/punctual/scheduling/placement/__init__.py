"""Placement: assigns processors and times to demands, partitions their loads, and avoids blackouts."""
