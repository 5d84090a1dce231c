"""The nouns of scheduling: jobs, pools, processors, units, and the events and actions that carry them."""
