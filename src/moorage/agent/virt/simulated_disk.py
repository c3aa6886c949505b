"""Disks of simulated domains: small files that say what a real disk would have on it.

``disks/<uuid>.raw`` begins with a line that names the image, the key of the rebuild that made it, and its size; what
the guest writes comes after it, and goes along with a snapshot. ``disks/<uuid>.rescue`` is there while a domain is
in rescue.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from moorage.agent.virt.driver import DiskImage, DomainSpec
from moorage.durable import write_durably

_FORMAT = "raw"


class SimulatedDisks:
    """Callers make sure that `uuid` is one; it names files here."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def make(self, spec: DomainSpec, *, key: str = "") -> None:
        """From the image of `spec`, in place of what was there."""
        write_durably(self.path(spec.uuid), _header(spec, key))

    def keep(self, spec: DomainSpec) -> None:
        """What is there stays, in its new size; made where there is none."""
        try:
            header, _, written = self.path(spec.uuid).read_bytes().partition(b"\n")
        except FileNotFoundError:
            self.make(spec)
            return
        image, key, _ = header.decode().split("\t")
        kept = f"{image}\t{key}\t{spec.disk_gb} GB\n".encode() + written
        if kept != header + b"\n" + written:
            write_durably(self.path(spec.uuid), kept)

    def is_of(self, uuid: str, key: str) -> bool:
        """Whether the rebuild `key` made this disk."""
        with contextlib.suppress(FileNotFoundError):
            return self.path(uuid).read_bytes().partition(b"\n")[0].split(b"\t")[1] == key.encode()
        return False

    def keep_config_drive(self, spec: DomainSpec) -> None:
        """As files: nothing boots here that could read a drive."""
        for name, content in (spec.config_drive or {}).items():
            path = self.config_drive(spec.uuid) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def config_drive(self, uuid: str) -> Path:
        return self._directory / f"{uuid}.config"

    def forget(self, uuid: str) -> None:
        for path in (self.path(uuid), self._rescue(uuid)):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.config_drive(uuid), ignore_errors=True)

    @contextlib.contextmanager
    def image(self, uuid: str) -> Iterator[DiskImage]:
        data = self.path(uuid).read_bytes()
        yield DiskImage(_FORMAT, len(data), iter((data,)))

    def is_rescued(self, uuid: str) -> bool:
        return self._rescue(uuid).exists()

    def begin_rescue(self, uuid: str, image_id: str) -> None:
        write_durably(self._rescue(uuid), f"{image_id}\n".encode())

    def end_rescue(self, uuid: str) -> None:
        self._rescue(uuid).unlink(missing_ok=True)

    def path(self, uuid: str) -> Path:
        return self._directory / f"{uuid}.raw"

    def _rescue(self, uuid: str) -> Path:
        return self._directory / f"{uuid}.rescue"


def _header(spec: DomainSpec, key: str) -> bytes:
    return f"image {spec.image_id or '-'}\t{key}\t{spec.disk_gb} GB\n".encode()
