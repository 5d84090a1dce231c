"""The windows of reservations: when each begins by the calendar, when a pool is asked for it, what is on record."""
