"""`punctual simulate`: one command per kind of simulation, each with the operator's own code."""
