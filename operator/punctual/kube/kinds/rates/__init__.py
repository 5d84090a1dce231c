"""Target rates: what is asked, which pods are selected, their counts in Prometheus, and how each stands."""
