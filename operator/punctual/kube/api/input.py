"""What a chunk must fetch before it can begin: where it is, what opens it, and where it may be cut."""

import re
from ipaddress import IPv6Address
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from punctual.fetch import overlaps
from punctual.kube.api.base import ApiModel, SchemaRule
from punctual.kube.api.fields import ObjectName, spelled
from punctual.kube.api.names import LONGEST_NAME

# what the API server checks: printable ASCII without '#'; `_can_be_reached` checks host and port
_URL: Final = r'^https?://([^/?#@]*@)?([-A-Za-z0-9_.]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?([/?][!"$-~]*)?$'
_PART: Final = r"[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?"
_HOST: Final = rf"({_PART}\.)*{_PART}\.?"
_PATH: Final = r"^[^/\s](.*[^/])?$"
_UP: Final = r"(^|/)\.\.(/|$)"
_USER: Final = r"^https?://[^/?#]*@"
_HEADER: Final = r"^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$"
_OURS: Final = (
    r"(?i)^(accept-encoding|connection|content-length|expect|host|if-range|range|te|trailer|transfer-encoding|upgrade)$"
)
_KEY: Final = r"^[-._A-Za-z0-9]+$"


def _can_be_reached(url: str) -> bool:
    """Return whether a server can have this host and port: a name or an IPv6 address, and 1 to 65535."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if ":" in host:
            IPv6Address(host)
        return parts.port != 0 and (
            ":" in host or (len(host) <= LONGEST_NAME and re.fullmatch(_HOST, host) is not None)
        )
    except ValueError:
        return False


def _reachable(url: str) -> str:
    """Refuse an address that no server can have."""
    if not _can_be_reached(url):
        message = "write an address such as https://example.com/data.csv: no server can have this host or port"
        raise PydanticCustomError("rule", "{message}", {"message": message, "field": None})
    return url


class SecretKey(ApiModel):
    """One key of a Secret."""

    name: ObjectName
    """Name of the Secret, in the job's namespace. Required in `secretKeyRef`."""
    key: Annotated[
        str,
        WithJsonSchema({"type": "string", "maxLength": 253}),
        spelled(_KEY, "write a key of the Secret: letters, digits, '-', '_' and '.', such as authorization", most=253),
    ]
    """Under which key the Secret has it. Required in `secretKeyRef`."""


class SecretHeader(ApiModel):
    """A header of each request. Only the fetching step sees its value."""

    name: Annotated[
        str,
        WithJsonSchema({"type": "string", "maxLength": 64}),
        spelled(_HEADER, "write the name of a header, such as Authorization", most=64),
        SchemaRule(
            f"!self.matches(r'{_OURS}')",
            "leave this header to the step that fetches: it says with it which bytes it wants, and how",
            lambda name: re.search(_OURS, name) is None,
        ),
    ]
    """The header's name: `Authorization`. Required in `headers`."""
    secret_key_ref: SecretKey
    """Where its whole value is: `{name: archive, key: authorization}`, with a value such as `Bearer …` or `Basic …`.
    Required in `headers`."""


class HttpInput(ApiModel):
    """A file behind an HTTP server that knows byte ranges."""

    RULES: ClassVar = (
        SchemaRule(
            "!has(self.headers) || self.headers.size() == 0 || self.allowInsecure || !self.url.startsWith('http://')",
            "over http:// all on the way can read them: take an https:// address, or set allowInsecure: true",
            lambda self: not self.headers or self.allow_insecure or not self.url.startswith("http://"),
            field="headers",
        ),
    )

    url: Annotated[
        str,
        WithJsonSchema({"type": "string", "maxLength": 2048}),
        spelled(_URL, "write an ASCII address such as https://example.com/data.csv, without blanks and #", most=2048),
        AfterValidator(_reachable),
        SchemaRule(
            f"!self.matches(r'{_USER}')",
            "leave user and password out of the address, which others can read: headers takes them from Secrets",
            lambda url: re.search(_USER, url) is None,
        ),
    ]
    """Its address, with http:// or https://. The server must answer range requests (206). Required in `http`."""
    headers: (
        Annotated[
            list[SecretHeader],
            Field(max_length=8),
            SchemaRule(
                "self.all(h, self.exists_one(other, other.name.lowerAscii() == h.name.lowerAscii()))",
                "name each header once",
                lambda headers: len({h.name.lower() for h in headers}) == len(headers),
            ),
        ]
        | None
    ) = None
    """Credentials that the server wants: headers with values from Secrets of the job's namespace,
    `[{name: Authorization, secretKeyRef: {name: archive, key: authorization}}]`. The pods' fetching step alone reads
    them; a server to which it is redirected elsewhere does not get them. With an http:// address they are refused
    unless `allowInsecure` is true."""
    allow_insecure: bool = False
    """true: `headers` may go to an http:// address, where all on the way can read them. Default false."""


class VolumeInput(ApiModel):
    """A file in a volume that is reached over the network, such as NFS."""

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim, in the job's namespace; it is mounted read-only. Required in `volume`."""
    path: Annotated[
        str,
        WithJsonSchema({"type": "string", "maxLength": 1024}),
        SchemaRule(
            f"self.matches(r'{_PATH}') && !self.matches(r'{_UP}')",
            "write a path below the volume's root, such as data/2030.csv, without '..'",
            lambda path: len(path) <= 1024 and re.search(_PATH, path) is not None and re.search(_UP, path) is None,
        ),
    ]
    """Where the file is in the volume: `data/2030.csv`. Required in `volume`."""


class Input(ApiModel):
    """What a chunk's pod fetches before its own containers begin: its share of one large file."""

    RULES: ClassVar = (
        SchemaRule(
            "has(self.http) != has(self.volume)",
            "set exactly one of http and volume",
            lambda self: (self.http is None) != (self.volume is None),
            field="http",
        ),
        SchemaRule(
            "(self.cut == 'Records') == (has(self.recordBytes) || has(self.separator)) && "
            "!(has(self.recordBytes) && has(self.separator))",
            "set recordBytes or separator with cut: Records, and only there",
            lambda self: (
                (self.cut == "Records") == (self.record_bytes is not None or self.separator is not None)
                and (self.record_bytes is None or self.separator is None)
            ),
            field="recordBytes",
        ),
    )

    http: HttpInput | None = None
    """A file behind an HTTP server: `{url: https://example.com/data.csv}`. Either this or `volume` is required."""
    volume: VolumeInput | None = None
    """A file in a volume: `{claimName: data, path: data/2030.csv}`. Either this or `http` is required."""
    cut: Literal["Bytes", "Lines", "Records"] = "Bytes"
    """Where it may be cut. The file's bytes are shared out evenly among the job's units. Bytes: a chunk gets exactly
    those of its units. Lines: it gets the lines that begin in them, whole. Records: records of one size (`recordBytes`)
    are shared out in place of bytes, or it gets the records that begin in its bytes (`separator`), whole. Default
    Bytes."""
    record_bytes: Annotated[int, Field(ge=1, le=2**40)] | None = None
    """How many bytes a record has; the file must be a whole number of them. Either this or `separator` is required with
    `cut: Records`."""
    separator: (
        Annotated[
            str,
            WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 16}),
            SchemaRule(
                # a list that is written out: the API server would have no bound for the cost of lists.range
                f"{list(range(1, 16))}.all(k, k >= size(self) || !self.startsWith(self.substring(k)))",
                "take a separator of 1 to 16 characters that does not end as it begins: "
                "where a record begins would not be certain",
                lambda text: 1 <= len(text) <= 16 and not overlaps(text.encode()),
            ),
        ]
        | None
    ) = None
    r"""What stands between two records: `"\n>"` for FASTA, `"\nFrom "` for a mail box. The part up to its last line end
    closes a record, and the rest begins the next one; without a line end all of it closes a record. A chunk gets a file
    of whole records."""
    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """An image with Python 3.9 or later in which `python3 -m punctual.fetch` runs. Default: the operator's own."""
