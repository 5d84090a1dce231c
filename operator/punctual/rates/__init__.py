"""Applications held at target rates: which are admitted, and the (period, slice) of each. Pure, as `scheduling`."""
