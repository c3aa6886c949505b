"""The file in which a host stores the provider configuration files that are in force, and the set that was before.

It contains the files unchanged; `moorage provider-config undo` restores the set that was in force before.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from moorage.core.errors import StartError
from moorage.durable import write_durably


class ConfigFileSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    taken_at: datetime  #: when it was put in force
    files: dict[str, str]  #: {name: content}


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    in_force: ConfigFileSet
    before: ConfigFileSet | None


_VERSION = 1


class CurrentConfigSet:
    """Reads its file once, and writes it when other files take effect."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        document = self._read()
        #: None: no files were ever in force.
        self.in_force = document.in_force if document else None
        self.before = document.before if document else None

    def put_in_force(self, files: Mapping[str, str], now: datetime) -> bool:
        """Records `files` as the set in force; the record is durable on return. Returns False if they were already."""
        if self.in_force is not None and self.in_force.files == files:
            return False
        in_force, before = ConfigFileSet(now, dict(files)), self.in_force
        document = _Document(_VERSION, in_force, before)
        write_durably(self._path, msgspec.json.format(msgspec.json.encode(document), indent=1))
        self.in_force, self.before = in_force, before
        return True

    def _read(self) -> _Document | None:
        try:
            document = msgspec.json.decode(self._path.read_bytes(), type=_Document)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise StartError(
                f"{self._path}: cannot be read: {error}; restore it, or remove it (then the last change of the "
                "provider configuration cannot be undone)"
            ) from error
        if document.version != _VERSION:
            raise StartError(f"{self._path}: has version {document.version}, but this agent writes {_VERSION}")
        return document
