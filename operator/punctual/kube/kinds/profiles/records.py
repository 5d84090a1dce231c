"""Profiles' statuses: read into samples, and made from these. Pure functions, without the API server."""

from collections.abc import Sequence
from dataclasses import asdict

from punctual.control.cost_estimation import Fetched, Timed
from punctual.control.response import Response, middle
from punctual.kube import api
from punctual.profiles.samples import ByHand, Samples, Where, digits


def restore(samples: Samples, status: api.ProfileStatus) -> None:
    """Load the samples that stand in a profile's status."""
    for c in status.classes:
        where, t = Where(c.pool, c.node_class), c.transfers
        samples.seen[where] = tuple(map(Timed, c.units, c.seconds))
        if t is not None:
            samples.fetched[where] = tuple(map(Fetched, t.units, t.opening, t.seconds))
        if c.responses:
            samples.responses[where] = tuple(Response(**dict(r)) for r in c.responses)


def profile_status(known: Samples, by_hand: ByHand) -> api.ProfileStatus:
    """Return what a profile's status says of its samples, and of their costs beside what is set by hand."""
    classes = []
    for where, seen in sorted(known.seen.items()):
        found, transfer = known.work(where, by_hand), known.transfer(where, by_hand)
        fetched = known.fetched.get(where)
        classes.append(
            api.LearnedCost(
                pool=where.pool,
                node_class=where.node_class,
                per_unit=None if found is None else digits(found.chi),
                transfer_per_unit=None if transfer is None else digits(transfer.chi),
                transfer_setup=None if transfer is None else digits(transfer.theta),
                startup=None if found is None else digits(found.theta),
                outliers=None if found is None else found.outliers,
                r2=None if found is None or found.r2 is None else round(found.r2, 4),
                units=[t.units for t in seen],
                seconds=[t.seconds for t in seen],
                transfers=None if fetched is None else _transfers(fetched),
                responses=[_response(r) for r in known.responses.get(where, ())] or None,
            )
        )
    if not classes:
        return api.ProfileStatus()
    best = max(classes, key=lambda c: len(c.units))
    response = middle(known.responses.get(Where(best.pool, best.node_class), ()))
    return api.ProfileStatus(
        per_unit=best.per_unit,
        transfer_per_unit=best.transfer_per_unit,
        transfer_setup=best.transfer_setup,
        startup=best.startup,
        samples=len(best.units),
        r2=best.r2,
        response=None if response is None else _response(response),
        classes=classes,
    )


def _transfers(fetched: Sequence[Fetched]) -> api.LearnedTransfers:
    units, opening, seconds = map(list, zip(*fetched, strict=True))
    return api.LearnedTransfers(units=units, opening=opening, seconds=seconds)


def _response(seen: Response) -> api.LearnedResponse:
    return api.LearnedResponse(**asdict(seen))
