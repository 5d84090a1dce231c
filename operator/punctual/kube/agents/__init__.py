"""Where agents report and what they are told."""
