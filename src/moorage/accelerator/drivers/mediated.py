"""Mediated devices: shares of a card that its kernel driver makes and removes on order.

Source: the kernel's driver-api/vfio-mediated-device, ABI/testing/sysfs-bus-vfio-mdev. A parent is a directory of
``/sys/class/mdev_bus``: there is one for each card, or virtual function, whose driver can make some.
"""

from collections.abc import Iterator
from pathlib import Path

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.drivers.sysfs import Sysfs
from moorage.accelerator.model.devices import Mdev


class MediatedDevices:
    def __init__(self, sysfs: Sysfs) -> None:
        self._sysfs = sysfs
        self._parents = sysfs.root / "class" / "mdev_bus"

    def shares(self, parent: str, kind: str) -> Iterator[Mdev]:
        """All of `kind` that `parent` can have and that are ours to give: those made by us, and room for more.

        What others have made is theirs. A parent that offers no such type, now, has none.
        """
        directory = self._type(parent, kind)
        room = self._sysfs.text(directory / "available_instances")
        if room is None:
            return
        if not room.isdecimal():
            raise DriverError(f"{directory}/available_instances is {room!r}; it should be a number")
        made = {path.name for path in (directory / "devices").glob("*")}
        left = int(room)
        for slot in range(left + len(made)):
            share = Mdev(parent, kind, slot)
            if share.uuid in made:
                yield share
            elif left:
                left -= 1
                yield share

    def create(self, parent: str, kind: str, uuid: str) -> None:
        """One that is there already is left as it is: it is ours, by its uuid."""
        if self.exists(parent, uuid):
            return
        self._sysfs.put(self._type(parent, kind) / "create", uuid)
        if not self.exists(parent, uuid):
            raise DriverError(f"the kernel was told to make the mediated device {uuid} on {parent} and it is not there")

    def remove(self, parent: str, uuid: str) -> None:
        if self.exists(parent, uuid):
            self._sysfs.put(self._parents / parent / uuid / "remove", "1")

    def exists(self, parent: str, uuid: str) -> bool:
        return (self._parents / parent / uuid).exists()

    def _type(self, parent: str, kind: str) -> Path:
        return self._parents / parent / "mdev_supported_types" / kind
