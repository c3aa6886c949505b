"""What is plugged where, on disk: one file per host, JSON in two places that are written in turn.

A write is durable before it counts (`moorage.durable.DurableDocument`). So after a kill at any moment what is read is
either the old or the new document, never half of one. What the contents mean is `attach_state`.
What changes hands in a step stands in the journal of the same document.
A lock beside it keeps a second process away: two agents over one file would hand out the same devices.
Spec: docs/evidence/specs/accelerator-attach.md
"""

import fcntl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from moorage.accelerator.model.attach_state import AttachState, with_transitions
from moorage.accelerator.model.history_derivation import derive_transitions
from moorage.core.clock import Clock, SystemClock
from moorage.core.errors import StartError
from moorage.durable import DurableDocument

VERSION = 2
#: Version 1 was the document alone, without places.
_READABLE = (b"1", b"2")


@dataclass(frozen=True, slots=True)
class _Document:
    version: int
    host: str
    holdings: AttachState


class Checkpoint:
    """The holdings of `host`. Steps are taken one at a time; readers see the last step taken.

    `clock` dates the records of the journal.
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
        """Let another process have it. A process that dies lets go by that."""
        self._document.close()
        self._process_lock.close()

    @property
    def state(self) -> AttachState:
        return self._attach_state

    def step(self, change: Callable[[AttachState], AttachState], reason: str = "") -> AttachState:
        """Apply `change` (pure; it may raise, then nothing happened) and return once the result is on disk.

        `reason` is for the history of devices: why something failed, or was undone.
        """
        with self._lock:
            after = change(self._attach_state)
            if seen := derive_transitions(self._attach_state, after, reason):
                after = with_transitions(after, seen, self._clock.now())
            if after != self._attach_state:
                self._write(after)
                self._attach_state = after
            return after

    def _read(self) -> AttachState:
        raw = self._document.read()
        if raw is None:
            return AttachState()
        try:
            version = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])["version"]
            if bytes(version) not in _READABLE:
                raise StartError(
                    f"{self._path} is of version {bytes(version).decode()}, this program writes version {VERSION}; "
                    "run the version that wrote it, unplug everything, then start this one"
                )
            document = msgspec.json.decode(raw, type=_Document)
        except (msgspec.MsgspecError, KeyError) as error:
            raise StartError(
                f"{self._path} cannot be read ({error}); it says which devices are in use, so nothing is guessed: "
                "restore it, or remove it once no instance on this host has an accelerator"
            ) from error
        if document.host != self._host:
            raise StartError(
                f"{self._path} belongs to host {document.host}, this is {self._host}; use another directory"
            )
        return document.holdings

    def _write(self, holdings: AttachState) -> None:
        self._document.write(msgspec.json.encode(_Document(VERSION, self._host, holdings)))


def _locked_for_this_process(path: Path) -> IO[bytes]:
    # lockf, not flock: a plane that is stopped and built again in one process must not meet its own old lock.
    file = path.with_suffix(".lock").open("ab")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise StartError(
            f"another process works with {path}; two would hand out the same devices: stop it, or give this one "
            "another directory"
        ) from error
    return file
