"""Files that commands write."""

import os
from pathlib import Path

from punctual.errors import PunctualError


def write(file: Path, text: str) -> None:
    """Write a file as a whole, or leave it as it was."""
    whole = not file.exists() or file.is_file()  # else a device or a pipe
    file = file.resolve() if whole else file
    beside = file.with_name(f".{file.name}.{os.getpid()}") if whole else file
    try:
        beside.write_text(text, encoding="utf-8")
        if whole:
            beside.replace(file)
    except OSError as error:
        if whole:
            beside.unlink(missing_ok=True)
        raise PunctualError(f"{file} cannot be written: {error.strerror}") from error
