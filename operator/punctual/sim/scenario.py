"""Scenarios of simulations: one JSON object each. An invalid one ends the run before it begins.

The message names the field and what would be right.
"""

import json
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from punctual.errors import PunctualError
from punctual.sim.trace import TraceError, first_flaw, unique_names


class ScenarioError(PunctualError):
    """An invalid scenario; the message begins with the field."""


class Part(BaseModel):
    """A part of a scenario. Strict: "200" is not a number. Unknown fields are typing errors."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


Scenario = TypeVar("Scenario", bound=Part)


def read(kind: type[Scenario], text: str | bytes) -> Scenario:
    """Read a scenario of a kind. Raises ScenarioError; a name that stands twice in one object is an error, too."""
    try:
        written = text if isinstance(text, str) else text.decode("utf-8-sig")
        json.loads(written, object_pairs_hook=unique_names)
        return kind.model_validate_json(written)
    except UnicodeDecodeError as error:
        raise ScenarioError(f"is not UTF-8, at byte {error.start + 1}") from error
    except TraceError as error:
        raise ScenarioError(str(error)) from error
    except json.JSONDecodeError as error:
        raise ScenarioError(f"Invalid JSON: {error.msg}, in line {error.lineno}, column {error.colno}") from error
    except ValidationError as error:
        raise ScenarioError(first_flaw(error)) from error
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits, a thousand brackets
        raise ScenarioError(f"Invalid JSON: {error}") from error
