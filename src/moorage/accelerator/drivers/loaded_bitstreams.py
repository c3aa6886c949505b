"""What was loaded into each region by this host, on disk beside the agent's state.

An FPGA can tell at most the id of the function it carries, not which image that was. So the driver writes down what
it has loaded together with what the card showed right afterwards (`seen`); while the card still shows that, the note
holds. Before it loads anything it writes down that it does: a note left so is a region that nobody knows.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from moorage.accelerator.model.devices import Bitstream
from moorage.core.errors import StartError
from moorage.durable import write_durably


@dataclass(frozen=True, slots=True)
class Note:
    region_type: str
    handles: tuple[str, ...] = ()
    seen: str = ""  #: what the card last showed; once something was loaded: right after that
    bitstream: Bitstream | None = None  #: loaded by us
    blank: bool = False  #: the blank was loaded by us
    loading: bool = False


@dataclass(frozen=True, slots=True)
class _Notes:
    regions: Mapping[str, Note] = field(default_factory=dict)


class LoadedNotes:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def of(self, deployable: str) -> Note | None:
        return self._read().regions.get(deployable)

    def change(self, deployable: str, change: Callable[[Note | None], Note]) -> None:
        """Durable when it returns; one that changes nothing is not written."""
        with self._lock:
            notes = self._read()
            before = notes.regions.get(deployable)
            if (after := change(before)) != before:
                regions = {**notes.regions, deployable: after}
                write_durably(self._path, msgspec.json.encode(replace(notes, regions=regions)))

    def _read(self) -> _Notes:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Notes)
        except FileNotFoundError:
            return _Notes()
        except msgspec.MsgspecError as error:
            raise StartError(
                f"{self._path} cannot be read: {error}; it says what FPGAs carry: restore it, or remove it and program "
                "them anew"
            ) from error
