"""The journal of repairs, which the command calls a receipt: JSON lines, each durable before the next action."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.core.errors import StartError
from moorage.durable import sync_directory

#: An HTTP request to a service that undoes a step.
Undo = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RepairStep:
    """A repair to make. `before` and `undo` go into the journal."""

    before: Mapping[str, object]
    undo: tuple[Undo, ...]
    apply: Callable[[], object]


class RepairJournal:
    def __init__(self, path: Path) -> None:
        """Raises `StartError` if the file cannot be created, or exists: a journal is never overwritten."""
        self.path = path
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
            sync_directory(path.parent)
        except OSError as error:
            raise StartError(
                f"the receipt {path} cannot be created: {error.strerror}; name another file with --receipt"
            ) from error
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")

    def write_entry(self, entry: Mapping[str, object]) -> None:
        """Durable when this returns. Raises `StartError` if the disk is full; then no repair may follow."""
        try:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StartError(f"the receipt {self.path} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        self._file.close()
