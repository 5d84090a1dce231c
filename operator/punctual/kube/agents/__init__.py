"""The report server for agents and the set points that they get."""
