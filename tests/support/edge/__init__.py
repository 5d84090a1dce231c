"""The edge in one process, on virtual time: replicas, an API server, kubelets and agents, and every fault by seed.

loop        one asyncio loop: virtual time, an order by seed, processes that freeze, slow down and die
virtual     puts the loop's time and the seed's randomness where programs look for them
store       objects, versions and watches, as the API server keeps them
apiserver   the API server's answers to requests, as bytes
link        what a client reaches it by: latency, cuts, lost answers
machines    kubelets, scheduler and garbage collector
replica     the operator on all of this
play        one seed: the scene and the story
users       what users do
faults      what goes wrong
applications users' own pods, and the limits that agents put on them
history     what is written to each object
ends        how a play has ended, for a comparison with one without faults
rules       what must hold
"""
