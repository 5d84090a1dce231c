"""What runs and carries out a term's decisions: an actor per pool for promises and one for guests, and their tools."""
