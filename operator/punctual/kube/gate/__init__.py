"""What is checked about a job before its Pool is asked: what it names, and whether its pods would be accepted."""
