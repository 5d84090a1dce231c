"""What is kept of ended chunks: measured costs in Profiles, results of ranges for the reduce step."""
