"""Whether a deadline can be promised: exact, fast and statistical tests, and the offers where it cannot."""
