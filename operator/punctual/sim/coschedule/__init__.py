"""Coscheduling on nodes that also run local work, simulated: `punctual simulate coschedule`.

Two models. In `slices`, ranks of applications wait for each other on nodes that give them slices of CPU. `stations` is
chapter 4 of Solsona 2002: tasks that come and go in the ready queues of nodes. `scenario` is the input of both,
`report` their output. Input, output and models are fixed: other programs check the results.
"""
