"""What an earlier leader has left: statuses stamped and read back before anything is decided about their objects."""
