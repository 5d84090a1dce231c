"""The namespaces that share a pool: what is on the account of each, from records and windows."""
