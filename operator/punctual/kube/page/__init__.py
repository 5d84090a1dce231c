"""The web page of a leader: who may see what, what it shows, and the server."""
