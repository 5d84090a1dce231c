"""What a chunk must fetch before it can begin: where it is, and where it may be cut."""

import re
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, WithJsonSchema

from punctual.kube.api.base import Model, Rule
from punctual.kube.api.fields import ObjectName

_URL: Final = r"^https?://[^/\s]+(/\S*)?$"
_PATH: Final = r"^[^/\s](.*[^/])?$"
_UP: Final = r"(^|/)\.\.(/|$)"


class HttpInput(Model):
    """A file behind an HTTP server that knows byte ranges."""

    url: Annotated[
        str,
        WithJsonSchema({"type": "string", "maxLength": 2048}),
        Rule(
            f"self.matches(r'{_URL}')",
            "write an address such as https://example.com/data.csv",
            lambda url: len(url) <= 2048 and re.search(_URL, url) is not None,
        ),
    ]
    """Its address, with http:// or https://. The server must answer range requests (206). Required in `http`."""


class VolumeInput(Model):
    """A file in a volume that is reached over the network, such as NFS."""

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim, in the job's namespace; it is mounted read-only. Required in `volume`."""
    path: Annotated[
        str,
        WithJsonSchema({"type": "string", "maxLength": 1024}),
        Rule(
            f"self.matches(r'{_PATH}') && !self.matches(r'{_UP}')",
            "write a path below the volume's root, such as data/2030.csv, without '..'",
            lambda path: len(path) <= 1024 and re.search(_PATH, path) is not None and re.search(_UP, path) is None,
        ),
    ]
    """Where the file is in the volume: `data/2030.csv`. Required in `volume`."""


class Input(Model):
    """What a chunk's pod fetches before its own containers begin: its share of one large file."""

    RULES: ClassVar = (
        Rule(
            "has(self.http) != has(self.volume)",
            "set exactly one of http and volume",
            lambda self: (self.http is None) != (self.volume is None),
            field="http",
        ),
        Rule(
            "(self.cut == 'Records') == has(self.recordBytes)",
            "set recordBytes with cut: Records, and only there",
            lambda self: (self.cut == "Records") == (self.record_bytes is not None),
            field="recordBytes",
        ),
    )

    http: HttpInput | None = None
    """A file behind an HTTP server: `{url: https://example.com/data.csv}`. Either this or `volume` is required."""
    volume: VolumeInput | None = None
    """A file in a volume: `{claimName: data, path: data/2030.csv}`. Either this or `http` is required."""
    cut: Literal["Bytes", "Lines", "Records"] = "Bytes"
    """Where it may be cut. The file's bytes are shared out evenly among the job's units. Bytes: a chunk gets exactly
    those of its units. Lines: it gets the lines that begin in them, whole. Records: all have `recordBytes`, and are
    shared out in place of bytes. Default Bytes."""
    record_bytes: Annotated[int, Field(ge=1, le=2**40)] | None = None
    """How many bytes a record has; the file must be a whole number of them. Required with `cut: Records`."""
    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """An image with Python 3.9 or later in which `python3 -m punctual.fetch` runs. Default: the operator's own."""
