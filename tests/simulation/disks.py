"""Disks that are full, fail, or keep half of a write when the writing process dies.

All small files that must be written completely go through `moorage.durable`; the simulation replaces its `os`.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage import durable

if TYPE_CHECKING:
    from tests.simulation.part import Part
    from tests.simulation.world import World


class Disk:
    """The calls of `moorage.durable`; the rest of `os` is unchanged."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._of: dict[int, Part | None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        part = self._world.part_of(Path(path))
        if part is not None:
            part.point(f"before it opens {Path(path).name}")
            if flags & os.O_WRONLY and not Path(path).name.startswith("devices.json"):  # the devices' own memory
                self._trouble(part, path)
        descriptor = os.open(path, flags, mode)
        self._of[descriptor] = part
        return descriptor

    def fsync(self, descriptor: int) -> None:
        part = self._of.get(descriptor)
        if part is not None:
            part.point("before its disk has it")
            if self._world.dice.strikes("failing"):
                raise OSError(errno.EIO, "Input/output error")

    fdatasync = fsync

    def pwrite(self, descriptor: int, content: bytes, offset: int) -> int:
        part = self._of.get(descriptor)
        if part is not None:
            self._trouble(part, "its checkpoint")
            alive = part.alive
            try:
                part.point("while it writes its checkpoint")
            except BaseException:
                if alive and self._world.dice.strikes("torn"):
                    os.pwrite(descriptor, content[: len(content) // 2], offset)
                raise
        return os.pwrite(descriptor, content, offset)

    def _trouble(self, part: "Part", path: object) -> None:
        if self._world.dice.strikes("full"):
            self._world.disk_full(part)
        if self._world.clock.now() < part.full_until:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        if self._world.dice.strikes("failing"):
            raise OSError(errno.EIO, "Input/output error", str(path))


@contextmanager
def watched(world: "World") -> Iterator[None]:
    durable.os = Disk(world)
    try:
        yield
    finally:
        durable.os = os
