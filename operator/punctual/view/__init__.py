"""Read models of jobs and pools that the command line and other readers share."""
