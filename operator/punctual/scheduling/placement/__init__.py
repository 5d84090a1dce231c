"""Where and when demands run: which processors each gets, how its load is cut, and around what."""
