"""The attach state of a host on disk: one file, with two slots of JSON that are written in turn.

Writes are durable and atomic (`moorage.durable.DurableDocument`): after a kill at any moment, a reader finds the old or
the new document, never a part of one. The document also contains the journal of the device history. A lock file
excludes a second process, because two agents on one file would give out the same devices. For the meaning of the
contents see `model.attach_state`.
Spec: docs/evidence/specs/accelerator-attach.md
"""

import fcntl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

import msgspec

from moorage.accelerator.model.attach_state import AttachState, with_transitions
from moorage.accelerator.model.history_derivation import derive_transitions
from moorage.core.clock import Clock, SystemClock
from moorage.core.errors import StartError
from moorage.durable import DurableDocument

VERSION = 2
#: Version 1 was a plain document without slots.
_READABLE = (b"1", b"2")


@dataclass(frozen=True, slots=True)
class _Document:
    version: int
    host: str
    holdings: AttachState


class Checkpoint:
    """The attach state of `host`. Steps run one at a time; readers see the result of the last one.

    `clock` gives the times of history records.
    """

    def __init__(self, path: Path, host: str, clock: Clock | None = None) -> None:
        self._path = path
        self._host = host
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._process_lock = _locked_for_this_process(path)
        self._document = DurableDocument(path)
        self._attach_state = self._read()

    def close(self) -> None:
        """Releases the lock, as the kernel does when the process ends."""
        self._document.close()
        self._process_lock.close()

    @property
    def state(self) -> AttachState:
        return self._attach_state

    def step(
        self,
        change: Callable[[AttachState], AttachState],
        reason: str = "",
        proofs: Mapping[str, str] = MappingProxyType({}),
    ) -> AttachState:
        """Applies `change`, and returns when the result is on disk. `change` is pure; if it raises, nothing changes.

        For the device history: `reason`, why something failed or was undone, and the proof of each cleaned handle.
        """
        with self._lock:
            after = change(self._attach_state)
            if transitions := derive_transitions(self._attach_state, after, reason, proofs):
                after = with_transitions(after, transitions, self._clock.now())
            if after != self._attach_state:
                self._write(after)
                self._attach_state = after
            return after

    def _read(self) -> AttachState:
        raw = self._document.read()
        if raw is None:
            return AttachState()
        document = _decode(self._path, raw)
        if document.host != self._host:
            raise StartError(
                f"{self._path} belongs to host {document.host}, but this is {self._host}; use another directory"
            )
        return document.holdings

    def _write(self, holdings: AttachState) -> None:
        self._document.write(msgspec.json.encode(_Document(VERSION, self._host, holdings)))


def read_attach_state(path: Path) -> AttachState:
    """The attach state in a checkpoint that another process may be using. Raises `StartError` if it cannot be read."""
    raw = DurableDocument(path).read()
    return AttachState() if raw is None else _decode(path, raw).holdings


def _decode(path: Path, raw: bytes) -> _Document:
    try:
        version = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])["version"]
        if bytes(version) not in _READABLE:
            raise StartError(
                f"{path} has version {bytes(version).decode()}, but this program writes version {VERSION}; "
                "run the program that wrote it, unplug everything, then start this one"
            )
        return msgspec.json.decode(raw, type=_Document)
    except (msgspec.MsgspecError, KeyError) as error:
        raise StartError(
            f"{path} cannot be read ({error}). It records which devices are in use, which cannot be guessed: "
            "restore the file, or remove it once no instance on this host has an accelerator"
        ) from error


def _locked_for_this_process(path: Path) -> IO[bytes]:
    # lockf, not flock: a plane that is stopped and rebuilt in one process must not block on its own old lock.
    file = path.with_suffix(".lock").open("ab")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise StartError(
            f"another process uses {path}, and two would give out the same devices; stop the other one, or use "
            "another directory"
        ) from error
    return file
