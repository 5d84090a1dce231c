"""Target rates between the API server and their control: what is asked, which pods are selected, how it stands."""
