"""Data model of scheduling: jobs, pools, processors and units, and the events and actions that carry them."""
