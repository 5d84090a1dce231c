"""The node agent: caps, progress and reports of the chunk pods of one node."""
