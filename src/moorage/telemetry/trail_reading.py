"""Reads the audit trail: rotated files, oldest first, then the current file, and optionally new entries as they come.

Reading writes and locks nothing. Entries that a full disk truncated are skipped; `TrailReader.damaged` counts them.
"""

import fnmatch
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import IO, TypedDict, cast

import orjson

from moorage.telemetry.trail import ENTRY_PREFIX

#: Seconds between two polls of `follow_entries`, which include rotated files, since other processes may still append to
#: them.
POLL_S = 0.25


class AddressDocument(TypedDict, total=False):
    address: str


class InitiatorDocument(TypedDict, total=False):
    id: str
    name: str
    project_id: str
    project_name: str
    is_service: bool
    host: AddressDocument


class TargetDocument(TypedDict, total=False):
    typeURI: str
    id: str
    part: str
    ids: list[str]


class ReasonDocument(TypedDict, total=False):
    reasonCode: str


class TrailEntry(TypedDict, total=False):
    """An entry of the audit trail: the keys that are read here."""

    eventTime: str
    outcome: str
    action: str
    request_id: str
    global_request_id: str
    initiator: InitiatorDocument
    target: TargetDocument
    reason: ReasonDocument


@dataclass(frozen=True)
class TrailFilter:
    """Selects entries. Fields that are None or empty match all; `since` <= time < `until`."""

    user: str | None = None  #: id or name
    project: str | None = None  #: id or name
    resource: str | None = None  #: an id, a type (``compute/servers``) or the beginning of a type
    action: str | None = None  #: a substring; with ``*``, a pattern of the whole action
    outcome: str | None = None
    request_id: str | None = None  #: the request's id, or the id that its client sent
    since: datetime | None = None
    until: datetime | None = None

    def matches(self, entry: TrailEntry) -> bool:
        return self._is_who(entry.get("initiator", {})) and self._is_what(entry) and self._is_when(entry)

    def _is_who(self, initiator: InitiatorDocument) -> bool:
        is_user = self.user is None or self.user in (initiator.get("id"), initiator.get("name"))
        return is_user and (
            self.project is None or self.project in (initiator.get("project_id"), initiator.get("project_name"))
        )

    def _is_what(self, entry: TrailEntry) -> bool:
        if self.outcome is not None and self.outcome != entry.get("outcome"):
            return False
        if self.request_id not in (None, entry.get("request_id"), entry.get("global_request_id")):
            return False
        if self.action is not None:
            pattern = self.action if "*" in self.action else f"*{self.action}*"
            if not fnmatch.fnmatchcase(str(entry.get("action", "")).lower(), pattern.lower()):
                return False
        return self.resource is None or _is_about(entry.get("target", {}), self.resource)

    def _is_when(self, entry: TrailEntry) -> bool:
        if self.since is None and self.until is None:
            return True
        try:
            moment = datetime.fromisoformat(str(entry.get("eventTime")))
        except ValueError:
            return False
        return (self.since is None or self.since <= moment) and (self.until is None or moment < self.until)


def _is_about(target: TargetDocument, resource: str) -> bool:
    kind = str(target.get("typeURI", ""))
    ids = (target.get("id"), *str(target.get("part", "")).split("/"), *target.get("ids", ()))
    return resource in ids or kind == resource or kind.startswith(f"{resource}/")


class TrailReader:
    """Reads the entries of the trail at `path` that match a filter."""

    def __init__(self, path: Path, wanted: TrailFilter) -> None:
        self._path = path
        self._wanted = wanted
        self.damaged = 0

    def read_entries(self) -> Iterator[TrailEntry]:
        """The entries that exist now. Raises `FileNotFoundError` if there is no file of the trail."""
        with ExitStack() as stack:
            opened = self._open(stack)
            if not opened:
                raise FileNotFoundError(str(self._path))
            for file in opened:
                if self._wanted.since is not None and os.fstat(file.fileno()).st_mtime < self._wanted.since.timestamp():
                    continue  # last written before that time
                for line in file:
                    yield from self._entries(line)

    def follow_entries(self, *, sleep: Callable[[float], None], from_now: bool) -> Iterator[TrailEntry]:
        """Never ends: yields the existing entries (unless `from_now`), then new ones."""
        tails: dict[tuple[int, int], _Tail] = {}
        is_first = True
        while True:
            for tail in self._new_tails(tails):
                tails[tail.identity] = tail
                if is_first and from_now:
                    tail.skip()
            is_first = False
            for tail in list(tails.values()):
                is_deleted = tail.is_deleted
                for line in tail.lines():
                    yield from self._entries(line)
                if is_deleted:
                    tails.pop(tail.identity).close()
            sleep(POLL_S)

    def _new_tails(self, known: Mapping[tuple[int, int], "_Tail"]) -> "list[_Tail]":
        """Files that did not exist at the last poll, oldest first."""
        found: list[_Tail] = []
        for path in self._paths():
            try:
                tail = _Tail(path)
            except FileNotFoundError:
                if path == self._path:
                    continue  # was just rotated, and nothing has been written since
                break
            if tail.identity in known:
                tail.close()
                break
            found.append(tail)
        return found[::-1]

    def _open(self, stack: ExitStack) -> list[IO[bytes]]:
        """All files, oldest first. They are opened newest first: a file that is rotated meanwhile is then found twice,
        instead of missed.
        """
        found: dict[tuple[int, int], IO[bytes]] = {}
        for path in self._paths():
            try:
                file = stack.enter_context(path.open("rb"))
            except FileNotFoundError:
                if path == self._path:
                    continue
                break
            found.setdefault(_identity(file), file)
        return list(found.values())[::-1]

    def _paths(self) -> Iterator[Path]:
        yield self._path
        yield from (Path(f"{self._path}.{number}") for number in count(1))

    def _entries(self, line: bytes) -> Iterator[TrailEntry]:
        entry = _decoded(line)
        if entry is None:
            self.damaged += 1
            # The next entry follows the truncated one on the same line.
            entry = _decoded(line[line.rfind(ENTRY_PREFIX) :]) if line.rfind(ENTRY_PREFIX) > 0 else None
        if entry is not None and self._wanted.matches(entry):
            yield entry


class _Tail:
    """One file, read up to its present end."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.identity = _identity(self._file)
        self._part = b""

    def skip(self) -> None:
        self._file.seek(0, os.SEEK_END)

    def lines(self) -> Iterator[bytes]:
        """The complete lines that were appended since the last call."""
        while piece := self._file.read(1 << 16):
            *whole, self._part = (self._part + piece).split(b"\n")
            yield from whole

    @property
    def is_deleted(self) -> bool:
        """Whether the file has no name any more. It stays open until then, so that no new file gets its inode."""
        return os.fstat(self._file.fileno()).st_nlink == 0

    def close(self) -> None:
        self._file.close()


def _identity(file: IO[bytes]) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino


def _decoded(line: bytes) -> TrailEntry | None:
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return cast(TrailEntry, entry) if isinstance(entry, dict) else None
