"""Which agents and callers are trusted: the certificate authority, its rotation and store, TokenReviews."""
