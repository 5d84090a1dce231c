"""A cluster that is only reckoned: the operator's own Pool under a virtual clock (``punctual simulate``)."""
