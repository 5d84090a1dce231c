"""Applications held at target rates, simulated: the control law of `control.rate` on modelled nodes.

`scenario` is the input, `slots` the CPU that nodes give, `application` what its ranks make of it, `run` the events in
their order, `report` the output. Input, output and model are fixed: other programs check the results.
"""
