"""The figures of Mamat 2011 run again (``make papers``): what is simulated for each, what came of it, how it is drawn.

Each chapter has a module with its figures; ``hack/papers`` runs them, tests run small versions. All of them drive the
operator's own Pool through ``punctual.sim``; beside it stand the paper's algorithms to the letter, as baselines.
"""
