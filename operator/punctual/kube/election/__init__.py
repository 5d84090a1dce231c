"""Which replica leads: the Lease, and the label of the leader's pod."""
