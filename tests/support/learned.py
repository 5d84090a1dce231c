"""Chunks from which profiles learn, as tests show them to what learns."""

from punctual.control.cost_estimation import Fetched
from punctual.profiles.samples import Where

HERE, OLD, NEW = Where("main", ""), Where("main", "old"), Where("main", "new")
SIZES = (10, 20, 50, 100, 200, 500)


class Shown:
    """Shows chunks of jobs that name profile thumbs of a namespace: ``add`` does it, ``begin`` makes the profile."""

    def see(self, *sizes, theta=5.0, chi=0.1, where=HERE, **whose):
        """Show chunks of these numbers of units."""
        for units in sizes:
            self.add(where, units, theta + chi * units, **whose)
        return self

    def vote(self, namespace, ratio, **whose):
        """Show chunks of another namespace, by which old nodes take so many times as long as new ones."""
        self.begin(namespace, **whose)
        self.see(*SIZES, chi=0.1 * ratio, where=OLD, namespace=namespace, **whose)
        return self.see(*SIZES, where=NEW, namespace=namespace, **whose)

    def fetch(self, *sizes, theta=5.0, chi=0.1, opening=0.5, tau=0.02, where=HERE):
        """Show chunks that fetched their inputs: the seconds of each in all, and those of its transfer."""
        for units in sizes:
            fetched = Fetched(units, opening, opening + tau * units)
            self.add(where, units, theta + chi * units + fetched.seconds, fetched=fetched)
        return self

    def answer(self, *responses, where=HERE):
        """Show chunks that have told how they answer to CPU."""
        for response in responses:
            self.add(where, 100, 15.0, response=response)
        return self

    def slow(self, pool="main"):
        """Return how long a unit takes on each class of nodes, as it is told."""
        return {name: found.slow for name, found in self.learning.classes(pool).items()}
