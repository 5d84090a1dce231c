"""Between the models of the wire, which count in samples, and responses, which count in seconds."""

from punctual import wire
from punctual.control.learner import ENOUGH
from punctual.control.line import FirstModel
from punctual.control.model import Model
from punctual.control.response import Response


def response_of(seen: wire.Followed) -> Response:
    """Return what an agent knows of a pod: learned, sent to it before, or from the estimated cost of a unit."""
    model = Model.first_order(seen.model.a, seen.model.b, delay=seen.model.delay)
    return Response.of(model, seen.noise, seen.sample)


def shown(seen: wire.Followed | None) -> Response | None:
    """Return the response that a pod has shown; None: it has shown none yet. A model that was sent is no evidence."""
    if seen is None or not seen.model.learned or seen.samples < ENOUGH:
        return None
    return response_of(seen)


def model_of(first: FirstModel) -> wire.ResponseModel:
    """Return the model that an agent begins with."""
    model = first.model
    return wire.ResponseModel(a=model.a[0], b=model.b[-1], delay=model.delay, learned=first.learned)
