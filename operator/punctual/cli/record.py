"""A record of what was seen: one JSON line per change, ``{"time": …, "kind": …, "what": …, "object": …}``.

Made by ``punctual watch --record FILE``, read by ``punctual timeline``. Pods go when their work is done, so what a
cluster no longer knows afterwards must be written down while it happens.
"""

import json
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Self

from punctual.errors import PunctualError
from punctual.view.changes import Change, Json, Reset, Seen


class WatchRecorder:
    """Writes the record; without a path it writes nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIOWrapper | None = None

    def __enter__(self) -> Self:
        """Begin a new record."""
        if self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("w", encoding="utf-8")
            except OSError as error:
                raise PunctualError(f"{self._path} cannot be written: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def note(self, news: Iterable[Change | Reset], now: float) -> None:
        """Write down changes."""
        if self._file is None:
            return
        for item in news:
            if isinstance(item, Change):
                line = {"time": round(now, 3), "kind": item.kind, "what": item.what, "object": _brief(item.body)}
                self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()


def _brief(body: Json) -> Json:
    """Leave out what no timeline needs and no record should tell: templates, environments, what kubectl applied."""
    meta = {k: v for k, v in body["metadata"].items() if k not in {"managedFields", "ownerReferences"}}
    meta["annotations"] = {k: v for k, v in (meta.get("annotations") or {}).items() if k.startswith("punctual.dev/")}
    spec = body.get("spec") or {}
    if body.get("kind") == "Pod" or "containers" in spec:
        spec = {"nodeName": spec.get("nodeName")}
    else:
        spec = {k: v for k, v in spec.items() if k not in {"template", "reduce"}}
    return {"metadata": meta, "spec": spec, "status": body.get("status") or {}}


def read(path: Path) -> Iterator[Seen]:
    """Read a record back."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                try:
                    said = json.loads(line)
                    yield Seen(said["time"], Change(said["kind"], said["what"], said["object"]))
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    raise PunctualError(f"{path}:{number} is not a line of a record") from error
    except OSError as error:
        raise PunctualError(f"{path} cannot be read: {error.strerror}") from error
