"""The files of each guest, in ``<directory>/guests/<uuid>/``.

    guest.json       the image of the guest's disk; while it is in rescue, rescue.json has the rescue system's image
    disk             qcow2 over a base image; disk.rescue
    disk.ephemeral, disk.swap, disk.config (the config drive), config/ (the drive's files)
    kernel, initrd   if the image names them; kernel.rescue, initrd.rescue
    console.log      the guest's output on its serial port

Every step may be repeated: files are written under another name and renamed when they are complete, and ``guest.json``
is written before the disk that it describes. The caller stops the guest before its disks change, and makes one call per
guest at a time.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

import msgspec

from moorage.agent.virt.domain_xml import DomainDisk, GuestPaths
from moorage.agent.virt.driver import DomainSpec, NoSuchDomain, VirtError
from moorage.agent.virt.libvirt_calls import run_program
from moorage.agent.virt.libvirt_images import BaseImage, BaseImages
from moorage.core.ids import is_uuid
from moorage.durable import write_durably
from moorage.images.base import ImageRecord, ProjectView

GIB = 1 << 30
MIB = 1 << 20
#: Command line of a kernel from the image service, unless the image gives one.
DEFAULT_CMDLINE = "root=/dev/vda console=tty0 console=ttyS0"
_RESCUE = ".rescue"


#: Image properties that say how to boot. A snapshot of the guest's disk gets them too.
BOOT_PROPERTIES = ("kernel_id", "ramdisk_id", "os_command_line", "hw_qemu_guest_agent")


class BootSystem(msgspec.Struct, frozen=True):
    """The content of ``guest.json`` or ``rescue.json``: how the system was made that the guest boots."""

    image_id: str | None
    key: str = ""  #: key of the rebuild that made it
    base: str | None = None  #: digest of the base image
    properties: Mapping[str, str] = {}  #: the image's `BOOT_PROPERTIES`

    @property
    def cmdline(self) -> str | None:
        """Kernel command line; None: the guest boots with its own boot loader."""
        if not self.properties.get("kernel_id"):
            return None
        return self.properties.get("os_command_line") or DEFAULT_CMDLINE

    @property
    def has_initrd(self) -> bool:
        return self.cmdline is not None and bool(self.properties.get("ramdisk_id"))

    @property
    def has_guest_agent(self) -> bool:
        return self.properties.get("hw_qemu_guest_agent", "").lower() in ("yes", "true", "1")


class GuestFiles:
    """All users need search permission on `directory` and its parents, because QEMU runs as a user of its own."""

    def __init__(self, directory: Path, images: BaseImages) -> None:
        self._directory = directory / "guests"
        self._images = images
        self._directory.mkdir(mode=0o711, parents=True, exist_ok=True)

    @property
    def disk_gb(self) -> int:
        """Size of the file system that contains the disks."""
        return shutil.disk_usage(self._directory).total // GIB

    # -------------------------------------------------------------------------------------------- create

    def prepare_disks(self, spec: DomainSpec) -> None:
        """Makes the disks of `spec` that do not exist. An existing disk is kept, and enlarged if `spec` wants more."""
        guest = self._guest_directory(spec.uuid)
        with self._os_errors_as_virt_errors():
            self._make_disks(guest, spec)

    def _make_disks(self, guest: Path, spec: DomainSpec) -> None:
        guest.mkdir(mode=0o711, exist_ok=True)
        if self._read_system(guest) is None or not (guest / "disk").exists():
            self._make_system(guest, "", spec, self._rebuild_key(guest))
        elif spec.disk_gb * GIB > _virtual_bytes(guest / "disk"):
            run_program(["qemu-img", "resize", "-q", "-f", "qcow2", guest / "disk", f"{spec.disk_gb}G"])
        _keep_ephemeral(guest / "disk.ephemeral", spec.ephemeral_gb * GIB)
        _keep_swap(guest / "disk.swap", spec.swap_mb * MIB)
        if spec.config_drive is not None:
            store_config_drive_files(spec.config_drive, guest / "config")
            write_config_drive(spec.config_drive, guest / "disk.config")

    @contextmanager
    def hold_image(self, spec: DomainSpec) -> Iterator[None]:
        """Fetches the image of `spec`, and keeps it on this host while the context lasts. Raises `VirtError` if no disk
        can be made from it.
        """
        with self._os_errors_as_virt_errors(), ExitStack() as held:
            if spec.image_id is not None:
                view = _view_of(spec)
                record = self._images.image_record(view, spec.image_id)
                _check_fits(record, held.enter_context(self._images.hold_base(view, record)), spec.disk_gb)
            yield

    def replace_disk(self, spec: DomainSpec, key: str) -> None:
        """Replaces the disks by new ones, for the rebuild `key`."""
        guest = self._guest_directory(spec.uuid)
        with self._os_errors_as_virt_errors():
            guest.mkdir(mode=0o711, exist_ok=True)
            self.end_rescue(spec.uuid)
            for name in ("disk", "disk.ephemeral", "disk.swap", "kernel", "initrd"):
                (guest / name).unlink(missing_ok=True)
            self._make_system(guest, "", spec, key)

    def is_rebuilt(self, uuid: str, key: str) -> bool:
        guest = self._guest_directory(uuid)
        return (guest / "disk").exists() and self._rebuild_key(guest) == key

    def begin_rescue(self, spec: DomainSpec, image_id: str, password: str) -> None:
        guest = self._guest_directory(spec.uuid)
        with self._os_errors_as_virt_errors():
            files = read_config_drive_files(guest / "config") if (guest / "config").exists() else {}
            write_config_drive(with_password(files, password), guest / f"disk.config{_RESCUE}")
            (guest / f"disk{_RESCUE}").unlink(missing_ok=True)
            self._make_system(guest, _RESCUE, replace(spec, image_id=image_id, disk_gb=0), "")

    def end_rescue(self, uuid: str) -> None:
        guest = self._guest_directory(uuid)
        for name in ("rescue.json", "disk", "kernel", "initrd", "disk.config"):
            (guest / (name if name.endswith(".json") else f"{name}{_RESCUE}")).unlink(missing_ok=True)

    def rescue_image_id(self, uuid: str) -> str | None:
        """Image of the rescue system; None if the guest is not in rescue, or the rescue disk is not complete."""
        guest = self._guest_directory(uuid)
        system = self._read_system(guest, _RESCUE)
        return system.image_id if system is not None and (guest / f"disk{_RESCUE}").exists() else None

    def _make_system(self, guest: Path, suffix: str, spec: DomainSpec, key: str) -> None:
        disk_gb = spec.disk_gb
        disk = guest / f"disk{suffix}"
        part = disk.with_name(f"{disk.name}.part")
        create: list[str | Path] = ["qemu-img", "create", "-q", "-f", "qcow2"]
        if spec.image_id is None:
            self._write_system(guest, suffix, BootSystem(None, key))
            run_program([*create, part, f"{max(disk_gb, 1)}G"])
        else:
            view = _view_of(spec)
            record = self._images.image_record(view, spec.image_id)
            with self._images.hold_base(view, record) as base:
                _check_fits(record, base, disk_gb)
                for name, property_name in (("kernel", "kernel_id"), ("initrd", "ramdisk_id")):
                    if file_image_id := record.properties.get(property_name):
                        self._images.copy_file(view, file_image_id, guest / f"{name}{suffix}")
                self._write_system(guest, suffix, _system_of(record, key, base.digest))
                size = max(disk_gb * GIB, base.virtual_bytes)
                run_program([*create, "-F", base.format, "-b", base.path, part, str(size)])
        part.rename(disk)

    @contextmanager
    def _os_errors_as_virt_errors(self) -> Iterator[None]:
        """Turns an `OSError`, for example of a full file system, into a `VirtError` that names the directory."""
        try:
            yield
        except OSError as error:
            raise VirtError(
                f"the files of this server cannot be written below {self._directory.parent}: {error.strerror}; repair "
                "that file system of the host, then try again"
            ) from error

    # ---------------------------------------------------------------------------------------------- read

    def guest_paths(self, uuid: str) -> GuestPaths:
        """The files and boot parameters for the domain's definition."""
        guest = self._guest_directory(uuid)
        rescued = self.rescue_image_id(uuid)
        suffix = _RESCUE if rescued else ""
        system = self._read_system(guest, suffix) or BootSystem(None)
        config = guest / f"disk.config{suffix}"
        disks = [DomainDisk(str(guest / f"disk{suffix}"), "qcow2")]
        if rescued:
            disks.append(DomainDisk(str(guest / "disk"), "qcow2"))
        disks += [
            DomainDisk(str(path), "raw") for name in ("ephemeral", "swap") if (path := guest / f"disk.{name}").exists()
        ]
        if config.exists():
            disks.append(DomainDisk(str(config), "raw", read_only=True))
        return GuestPaths(
            disks=tuple(disks),
            console=str(guest / "console.log"),
            kernel=str(guest / f"kernel{suffix}") if system.cmdline else None,
            initrd=str(guest / f"initrd{suffix}") if system.has_initrd else None,
            cmdline=system.cmdline,
            guest_agent=system.has_guest_agent,
            rescue_image=rescued,
        )

    def boot_properties(self, uuid: str) -> Mapping[str, str]:
        """`BOOT_PROPERTIES` of the image of the guest's own disk."""
        system = self._read_system(self._guest_directory(uuid))
        return {} if system is None else system.properties

    def disk_path(self, uuid: str) -> Path:
        return self._guest_directory(uuid) / "disk"

    def snapshot(self, uuid: str) -> Path:
        return self._guest_directory(uuid) / "snapshot"

    def console(self, uuid: str, max_bytes: int) -> str:
        """The last `max_bytes` bytes of the console."""
        try:
            with (self._guest_directory(uuid) / "console.log").open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - max_bytes))
                return file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    # -------------------------------------------------------------------------------------------- delete

    def remove(self, uuid: str) -> None:
        shutil.rmtree(self._guest_directory(uuid), ignore_errors=True)
        self._images.remove_unused(self._base_digests)

    def _base_digests(self) -> Iterator[str]:
        for guest in self._directory.iterdir():
            for suffix in ("", _RESCUE):
                system = self._read_system(guest, suffix)
                if system is not None and system.base is not None:
                    yield system.base

    # ------------------------------------------------------------------------------------------ guest.json

    def _guest_directory(self, uuid: str) -> Path:
        """Directory of the guest. Raises `NoSuchDomain` if `uuid` is not a uuid: it must not name another directory."""
        if not is_uuid(uuid):
            raise NoSuchDomain(f"{uuid!r} is not the uuid of a server")
        return self._directory / uuid.lower()

    def _rebuild_key(self, guest: Path) -> str:
        system = self._read_system(guest)
        return system.key if system is not None else ""

    def _write_system(self, guest: Path, suffix: str, system: BootSystem) -> None:
        write_durably(guest / _system_file_name(suffix), msgspec.json.encode(system))

    def _read_system(self, guest: Path, suffix: str = "") -> BootSystem | None:
        try:
            return msgspec.json.decode((guest / _system_file_name(suffix)).read_bytes(), type=BootSystem)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _view_of(spec: DomainSpec) -> ProjectView:
    """The view with which the agent reads images for the server's project. Raises `VirtError` for a server without a
    project.
    """
    if not spec.project_id:
        raise VirtError(f"server {spec.uuid} has no project, so no image can be fetched for it")
    return ProjectView(spec.project_id)


def _check_fits(record: ImageRecord, base: BaseImage, disk_gb: int) -> None:
    """Raises `VirtError` if the image is larger than the flavor's disk, `disk_gb` (0: no limit)."""
    if disk_gb and base.virtual_bytes > disk_gb * GIB:
        raise VirtError(
            f"image {record.id} needs a disk of {-(-base.virtual_bytes // GIB)} GB, but the flavor has {disk_gb} GB; "
            "use a larger flavor"
        )


def _system_of(record: ImageRecord, key: str, digest: str) -> BootSystem:
    properties = {name: record.properties[name] for name in BOOT_PROPERTIES if record.properties.get(name)}
    return BootSystem(record.id, key, digest, properties)


def _system_file_name(suffix: str) -> str:
    return "rescue.json" if suffix else "guest.json"


def _virtual_bytes(path: Path) -> int:
    document: Mapping[str, int] = json.loads(
        run_program(["qemu-img", "info", "--output=json", "-U", "-f", "qcow2", path])
    )
    return document["virtual-size"]


def _keep_ephemeral(path: Path, size: int) -> None:
    """Makes, enlarges or removes the ephemeral disk. It has a file system, which the guest has to enlarge itself."""
    if not size:
        path.unlink(missing_ok=True)
    elif not path.exists():
        part = _new_empty_file(path, size)
        run_program(["mkfs.ext4", "-q", "-F", "-L", "ephemeral0", part])
        part.rename(path)
    elif path.stat().st_size < size:
        with path.open("r+b") as file:
            file.truncate(size)


def _keep_swap(path: Path, size: int) -> None:
    if not size:
        path.unlink(missing_ok=True)
    elif not path.exists() or path.stat().st_size != size:
        part = _new_empty_file(path, size)
        run_program(["mkswap", part])
        part.rename(path)


def _new_empty_file(path: Path, size: int) -> Path:
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    with part.open("wb") as file:
        file.truncate(size)
    return part


LABEL = "config-2"
META_DATA = "openstack/latest/meta_data.json"
#: Programs that write ISO 9660 images and take the same arguments, most common first.
_PROGRAMS = ("genisoimage", "mkisofs", "xorrisofs")


def write_config_drive(files: Mapping[str, bytes], to: Path) -> None:
    """Writes a config drive: a small ISO 9660 image with the label that cloud-init looks for.

    `files`: {path below the drive's root: content}. Replaces `to` atomically.
    """
    program = next((name for name in _PROGRAMS if shutil.which(name)), _PROGRAMS[0])
    part = to.with_name(f"{to.name}.part")
    with tempfile.TemporaryDirectory(prefix="config-drive-", dir=to.parent) as directory:
        for name, content in files.items():
            path = Path(directory) / _path_inside_drive(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        run_program(
            [program, "-quiet", "-J", "-r", "-ldots", "-allow-multidot", "-l", "-V", LABEL, "-o", part, directory]
        )
    part.rename(to)


def with_password(files: Mapping[str, bytes], password: str) -> dict[str, bytes]:
    """`files` with the administrator's password, which a rescue system reads from its config drive."""
    document = json.loads(files.get(META_DATA, b"{}"))
    return {**files, META_DATA: json.dumps(document | {"admin_pass": password}).encode()}


def store_config_drive_files(files: Mapping[str, bytes], directory: Path) -> None:
    """Stores the files of the drive, from which `begin_rescue` writes another drive."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    for name, content in files.items():
        path = directory / _path_inside_drive(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def read_config_drive_files(directory: Path) -> dict[str, bytes]:
    found = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


def _path_inside_drive(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise VirtError(f"{name!r} is not a path inside a config drive")
    return path
