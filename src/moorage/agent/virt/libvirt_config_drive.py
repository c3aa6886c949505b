"""The config drive: files for the guest on a small ISO 9660 image with the label that cloud-init looks for."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from moorage.agent.virt.driver import VirtError
from moorage.agent.virt.libvirt_programs import run

LABEL = "config-2"
META_DATA = "openstack/latest/meta_data.json"
#: Programs that take the same words, the usual one first.
_PROGRAMS = ("genisoimage", "mkisofs", "xorrisofs")


def write(files: Mapping[str, bytes], to: Path) -> None:
    """`files`: path below the drive's root -> content. `to` is replaced as a whole."""
    program = next((name for name in _PROGRAMS if shutil.which(name)), _PROGRAMS[0])
    part = to.with_name(f"{to.name}.part")
    with tempfile.TemporaryDirectory(prefix="config-drive-", dir=to.parent) as directory:
        for name, content in files.items():
            path = Path(directory) / _inside(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        run([program, "-quiet", "-J", "-r", "-ldots", "-allow-multidot", "-l", "-V", LABEL, "-o", part, directory])
    part.rename(to)


def with_password(files: Mapping[str, bytes], password: str) -> dict[str, bytes]:
    """The same for a rescue system, which takes its administrator's password from there."""
    document = json.loads(files.get(META_DATA, b"{}"))
    return {**files, META_DATA: json.dumps(document | {"admin_pass": password}).encode()}


def keep(files: Mapping[str, bytes], directory: Path) -> None:
    """The files themselves, for the next drive with the same content."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    for name, content in files.items():
        path = directory / _inside(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def kept(directory: Path) -> dict[str, bytes]:
    found = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise VirtError(f"{name!r} is no path inside a config drive")
    return path
