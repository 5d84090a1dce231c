"""How Kubernetes writes values: durations, quantities, JSON; and the clock and the rate they are used with."""
