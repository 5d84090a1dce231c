"""Admission: exact, fast and statistical tests of whether a deadline can be promised, and offers for refused jobs."""
