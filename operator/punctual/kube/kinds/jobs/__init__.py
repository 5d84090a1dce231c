"""Jobs: judged before their Pool is asked, told to it, and written about while no Pool decides."""
