"""A record of a watch: one JSON line per change, ``{"time": …, "kind": …, "what": …, "object": …}``.

Made by ``punctual watch --record FILE``, read by ``punctual timeline``. Pods are deleted when their work is done,
so they must be recorded while they run.
"""

import json
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Self

from punctual.errors import PunctualError
from punctual.view.changes import Change, Json, Reset, SeenChange


class WatchRecorder:
    """Writes the record. Without a path it writes nothing."""

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
        """Record changes."""
        if self._file is None:
            return
        for item in news:
            if isinstance(item, Change):
                line = {"time": round(now, 3), "kind": item.kind, "what": item.what, "object": _brief(item.body)}
                self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()


def _brief(body: Json) -> Json:
    """Leave out what a timeline does not need and a record must not reveal: templates, environments, annotations."""
    meta = {k: v for k, v in body["metadata"].items() if k not in {"managedFields", "ownerReferences"}}
    meta["annotations"] = {k: v for k, v in (meta.get("annotations") or {}).items() if k.startswith("punctual.dev/")}
    spec = body.get("spec") or {}
    if body.get("kind") == "Pod" or "containers" in spec:
        spec = {"nodeName": spec.get("nodeName")}
    else:
        spec = {k: v for k, v in spec.items() if k not in {"template", "reduce"}}
    return {"metadata": meta, "spec": spec, "status": body.get("status") or {}}


def read(path: Path) -> Iterator[SeenChange]:
    """Read a record. Raises PunctualError with the line that is not one."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                try:
                    said = json.loads(line)
                    yield SeenChange(said["time"], Change(said["kind"], said["what"], said["object"]))
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    raise PunctualError(
                        f"{path}:{number} is not a line of a record: expected a file that punctual watch --record wrote"
                    ) from error
    except OSError as error:
        raise PunctualError(f"{path} cannot be read: {error.strerror}") from error
