"""The web page of a leader: the rights of its viewers, what it shows, and the server."""
