"""What an audit changed: a file of JSON lines, each there for good before the next thing happens.

For each action first a line of what is about to be done, with the state before and the requests that would bring it
back, then a line of how it ended. A kill between the two leaves the first: look whether it was done.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moorage.core.errors import StartError
from moorage.durable import sync_directory


class RepairJournal:
    def __init__(self, path: Path) -> None:
        """Raises `StartError` where the file cannot be made, or is there already: no receipt is written over."""
        self.path = path
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
            sync_directory(path.parent)
        except OSError as error:
            raise StartError(
                f"the receipt {path} cannot be made: {error.strerror}; name another with --receipt"
            ) from error
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")

    def write(self, entry: Mapping[str, Any]) -> None:
        """Durable when this returns. Raises `StartError` where the disk is full: nothing more may be done then."""
        try:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StartError(f"the receipt {self.path} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        self._file.close()
