"""Trust between agents and operator: the certificate authority, its rotation and CA store, and TokenReviews."""
