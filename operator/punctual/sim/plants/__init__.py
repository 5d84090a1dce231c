"""Jobs on the cores of one node, each a process that answers to its CPU cap: `punctual simulate control`."""
