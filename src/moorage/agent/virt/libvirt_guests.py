"""The files of each guest, in ``<directory>/guests/<uuid>/``.

    guest.json       the image of its disk; rescue.json: that of the rescue system, while it is in rescue
    disk             qcow2 over a base image; disk.rescue
    disk.ephemeral, disk.swap, disk.config (the config drive), config/ (the drive's files)
    kernel, initrd   if the image names them; kernel.rescue, initrd.rescue
    console.log      the guest's output on its serial port

Every step may be repeated: a file is complete as soon as it has its name, and ``guest.json`` is written before the disk
that it describes. The caller ensures that the guest is off while its disks change, and makes one call per guest at a
time.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

import msgspec

from moorage.agent.virt.driver import DomainSpec, NoSuchDomain, VirtError
from moorage.agent.virt.libvirt_images import BaseImage, BaseImages
from moorage.agent.virt.libvirt_programs import run_program
from moorage.agent.virt.xml.domain_xml import DomainDisk, GuestPaths
from moorage.core.ids import is_uuid
from moorage.durable import write_durably
from moorage.images.base import ImageRecord
from moorage.images.views import ProjectView

GIB = 1 << 30
MIB = 1 << 20
#: Command line of a kernel from the image service, unless the image gives one.
DEFAULT_CMDLINE = "root=/dev/vda console=tty0 console=ttyS0"
_RESCUE = ".rescue"


#: Image properties about booting. An image made of the disk gets them too.
BOOT_PROPERTIES = ("kernel_id", "ramdisk_id", "os_command_line", "hw_qemu_guest_agent")


class BootSystem(msgspec.Struct, frozen=True):
    """The system that a guest boots, made from an image."""

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
    """Every user, QEMU's among them, must be able to enter `directory` and its parents."""

    def __init__(self, directory: Path, images: BaseImages) -> None:
        self._directory = directory / "guests"
        self._images = images
        self._directory.mkdir(mode=0o711, parents=True, exist_ok=True)

    @property
    def disk_gb(self) -> int:
        """Size of the file system that the disks are on."""
        return shutil.disk_usage(self._directory).total // GIB

    # -------------------------------------------------------------------------------------------- create

    def prepare_disks(self, spec: DomainSpec) -> None:
        """Make all disks of `spec`. Existing disks are kept and may grow."""
        guest = self._guest(spec.uuid)
        with self._writing():
            self._prepare(guest, spec)

    def _prepare(self, guest: Path, spec: DomainSpec) -> None:
        guest.mkdir(mode=0o711, exist_ok=True)
        if self._system(guest) is None or not (guest / "disk").exists():
            self._make_system(guest, "", spec, self._key(guest))
        elif spec.disk_gb * GIB > _virtual_bytes(guest / "disk"):
            run_program(["qemu-img", "resize", "-q", "-f", "qcow2", guest / "disk", f"{spec.disk_gb}G"])
        _keep_ephemeral(guest / "disk.ephemeral", spec.ephemeral_gb * GIB)
        _keep_swap(guest / "disk.swap", spec.swap_mb * MIB)
        if spec.config_drive is not None:
            keep_config_drive_files(spec.config_drive, guest / "config")
            write_config_drive(spec.config_drive, guest / "disk.config")

    @contextmanager
    def image_at_hand(self, spec: DomainSpec) -> Iterator[None]:
        """Keeps the image of `spec` on this host while the context lasts. Raises `VirtError` if no disk can be made
        from it.
        """
        with self._writing(), ExitStack() as held:
            if spec.image_id is not None:
                view = _view_of(spec)
                record = self._images.image_record(view, spec.image_id)
                _check_fits(record, held.enter_context(self._images.hold_base(view, record)), spec.disk_gb)
            yield

    def remake_disk(self, spec: DomainSpec, key: str) -> None:
        """Replaces the disk by a new one, for the rebuild `key`."""
        guest = self._guest(spec.uuid)
        with self._writing():
            guest.mkdir(mode=0o711, exist_ok=True)
            self.end_rescue(spec.uuid)
            for name in ("disk", "disk.ephemeral", "disk.swap", "kernel", "initrd"):
                (guest / name).unlink(missing_ok=True)
            self._make_system(guest, "", spec, key)

    def is_made_by(self, uuid: str, key: str) -> bool:
        guest = self._guest(uuid)
        return (guest / "disk").exists() and self._key(guest) == key

    def begin_rescue(self, spec: DomainSpec, image_id: str, password: str) -> None:
        guest = self._guest(spec.uuid)
        with self._writing():
            files = read_config_drive_files(guest / "config") if (guest / "config").exists() else {}
            write_config_drive(with_password(files, password), guest / f"disk.config{_RESCUE}")
            (guest / f"disk{_RESCUE}").unlink(missing_ok=True)
            self._make_system(guest, _RESCUE, replace(spec, image_id=image_id, disk_gb=0), "")

    def end_rescue(self, uuid: str) -> None:
        guest = self._guest(uuid)
        for name in ("rescue.json", "disk", "kernel", "initrd", "disk.config"):
            (guest / (name if name.endswith(".json") else f"{name}{_RESCUE}")).unlink(missing_ok=True)

    def rescued_with(self, uuid: str) -> str | None:
        """Image of the rescue system; None if there is no complete one."""
        guest = self._guest(uuid)
        system = self._system(guest, _RESCUE)
        return system.image_id if system is not None and (guest / f"disk{_RESCUE}").exists() else None

    def _make_system(self, guest: Path, suffix: str, spec: DomainSpec, key: str) -> None:
        disk_gb = spec.disk_gb
        disk = guest / f"disk{suffix}"
        part = disk.with_name(f"{disk.name}.part")
        create: list[str | Path] = ["qemu-img", "create", "-q", "-f", "qcow2"]
        if spec.image_id is None:
            self._note(guest, suffix, BootSystem(None, key))
            run_program([*create, part, f"{max(disk_gb, 1)}G"])
        else:
            view = _view_of(spec)
            record = self._images.image_record(view, spec.image_id)
            with self._images.hold_base(view, record) as base:
                _check_fits(record, base, disk_gb)
                for name, key_of_it in (("kernel", "kernel_id"), ("initrd", "ramdisk_id")):
                    if other := record.properties.get(key_of_it):
                        self._images.copy_file(view, other, guest / f"{name}{suffix}")
                self._note(guest, suffix, _system_of(record, key, base.digest))
                size = max(disk_gb * GIB, base.virtual_bytes)
                run_program([*create, "-F", base.format, "-b", base.path, part, str(size)])
        part.rename(disk)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turns an `OSError`, such as that of a full file system, into a `VirtError` that names the directory."""
        try:
            yield
        except OSError as error:
            raise VirtError(
                f"the files of this server cannot be written below {self._directory.parent}: {error.strerror}; repair "
                "that file system of the host, then try again"
            ) from error

    # ---------------------------------------------------------------------------------------------- read

    def guest_paths(self, uuid: str) -> GuestPaths:
        """The files that the domain's definition names."""
        guest = self._guest(uuid)
        rescued = self.rescued_with(uuid)
        suffix = _RESCUE if rescued else ""
        system = self._system(guest, suffix) or BootSystem(None)
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
        """Boot properties of its own system, as image properties."""
        system = self._system(self._guest(uuid))
        return {} if system is None else system.properties

    def disk_path(self, uuid: str) -> Path:
        return self._guest(uuid) / "disk"

    def snapshot(self, uuid: str) -> Path:
        return self._guest(uuid) / "snapshot"

    def console(self, uuid: str, most_bytes: int) -> str:
        """The last `most_bytes` bytes of the console."""
        try:
            with (self._guest(uuid) / "console.log").open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - most_bytes))
                return file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    # -------------------------------------------------------------------------------------------- delete

    def forget(self, uuid: str) -> None:
        shutil.rmtree(self._guest(uuid), ignore_errors=True)
        self._images.forget_unused(self._bases)

    def _bases(self) -> Iterator[str]:
        for guest in self._directory.iterdir():
            for suffix in ("", _RESCUE):
                system = self._system(guest, suffix)
                if system is not None and system.base is not None:
                    yield system.base

    # ------------------------------------------------------------------------------------------ guest.json

    def _guest(self, uuid: str) -> Path:
        """Directory of the guest. Raises `NoSuchDomain` unless `uuid` is a uuid, because it names a directory."""
        if not is_uuid(uuid):
            raise NoSuchDomain(f"{uuid!r} is not the uuid of a server")
        return self._directory / uuid.lower()

    def _key(self, guest: Path) -> str:
        system = self._system(guest)
        return system.key if system is not None else ""

    def _note(self, guest: Path, suffix: str, system: BootSystem) -> None:
        write_durably(guest / _note_name(suffix), msgspec.json.encode(system))

    def _system(self, guest: Path, suffix: str = "") -> BootSystem | None:
        try:
            return msgspec.json.decode((guest / _note_name(suffix)).read_bytes(), type=BootSystem)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _view_of(spec: DomainSpec) -> ProjectView:
    """The image view of the server's project, for which the agent acts. Raises `VirtError` for a server without a
    project.
    """
    if not spec.project_id:
        raise VirtError(f"server {spec.uuid} has no project, so no image can be fetched for it")
    return ProjectView(spec.project_id)


def _check_fits(record: ImageRecord, base: BaseImage, disk_gb: int) -> None:
    """Raises `VirtError` if the image is larger than the flavor's disk, which Placement counts; `disk_gb` 0 fits any."""
    if disk_gb and base.virtual_bytes > disk_gb * GIB:
        raise VirtError(
            f"image {record.id} is a disk of {-(-base.virtual_bytes // GIB)} GB, and the flavor gives {disk_gb} GB; take "
            "a larger flavor"
        )


def _system_of(record: ImageRecord, key: str, digest: str) -> BootSystem:
    properties = {name: record.properties[name] for name in BOOT_PROPERTIES if record.properties.get(name)}
    return BootSystem(record.id, key, digest, properties)


def _note_name(suffix: str) -> str:
    return "rescue.json" if suffix else "guest.json"


def _virtual_bytes(path: Path) -> int:
    document: Mapping[str, int] = json.loads(
        run_program(["qemu-img", "info", "--output=json", "-U", "-f", "qcow2", path])
    )
    return document["virtual-size"]


def _keep_ephemeral(path: Path, size: int) -> None:
    """Keep or make the ephemeral disk with a file system, which the guest enlarges when the disk has grown."""
    if not size:
        path.unlink(missing_ok=True)
    elif not path.exists():
        part = _empty(path, size)
        run_program(["mkfs.ext4", "-q", "-F", "-L", "ephemeral0", part])
        part.rename(path)
    elif path.stat().st_size < size:
        with path.open("r+b") as file:
            file.truncate(size)


def _keep_swap(path: Path, size: int) -> None:
    if not size:
        path.unlink(missing_ok=True)
    elif not path.exists() or path.stat().st_size != size:
        part = _empty(path, size)
        run_program(["mkswap", part])
        part.rename(path)


def _empty(path: Path, size: int) -> Path:
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    with part.open("wb") as file:
        file.truncate(size)
    return part


LABEL = "config-2"
META_DATA = "openstack/latest/meta_data.json"
#: Programs with the same arguments, the usual one first.
_PROGRAMS = ("genisoimage", "mkisofs", "xorrisofs")


def write_config_drive(files: Mapping[str, bytes], to: Path) -> None:
    """Write a config drive: a small ISO 9660 image with the label that cloud-init looks for.

    `files`: {path below the drive's root: content}. `to` is replaced as a whole.
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


def keep_config_drive_files(files: Mapping[str, bytes], directory: Path) -> None:
    """Store the files of the drive; the next drive is written from them."""
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
