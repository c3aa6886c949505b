"""Disks that are full, fail, or keep half of a write when the writing process dies.

`moorage.durable` writes all small files that must be written completely; the simulation replaces its `os`.
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
    """Stands in for `os` in `moorage.durable`: the calls below can fail, all others are unchanged."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._of: dict[int, Part | None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        part = self._world.part_of(Path(path))
        if part is not None:
            part.point(f"before it opens {Path(path).name}")
            if flags & os.O_WRONLY and not Path(path).name.startswith(
                "devices.json"
            ):  # the state of the simulated devices
                self._fail_randomly(part, path)
        descriptor = os.open(path, flags, mode)
        self._of[descriptor] = part
        return descriptor

    def fsync(self, descriptor: int) -> None:
        part = self._of.get(descriptor)
        if part is not None:
            part.point("before its disk has it")
            if self._world.dice.happens("failing"):
                raise OSError(errno.EIO, "Input/output error")

    fdatasync = fsync

    def pwrite(self, descriptor: int, content: bytes, offset: int) -> int:
        part = self._of.get(descriptor)
        if part is not None:
            self._fail_randomly(part, "its checkpoint")
            alive = part.alive
            try:
                part.point("while it writes its checkpoint")
            except BaseException:  # a simulated death is one; a write that it interrupts may be torn; raised again
                if alive and self._world.dice.happens("torn"):
                    os.pwrite(descriptor, content[: len(content) // 2], offset)
                raise
        return os.pwrite(descriptor, content, offset)

    def _fail_randomly(self, part: "Part", path: object) -> None:
        if self._world.dice.happens("full"):
            self._world.disk_full(part)
        if self._world.clock.now() < part.full_until:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        if self._world.dice.happens("failing"):
            raise OSError(errno.EIO, "Input/output error", str(path))


@contextmanager
def watched(world: "World") -> Iterator[None]:
    durable.os = Disk(world)
    try:
        yield
    finally:
        durable.os = os
