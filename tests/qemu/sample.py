"""Builds the kernel's sample of mediated devices (mtty), which Debian does not build, from Debian's own source.

Builds once per kernel; downloads 150 MB and installs nothing.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests import servers
from tests.servers import ServerMissing
from tests.servers import _locked as locked


def mtty(kernel: Path) -> Path:
    """The directory with mtty.ko for `kernel` (``.../vmlinuz-6.1.0-56-amd64``)."""
    version = kernel.name.removeprefix("vmlinuz-")
    state = servers.place()
    place = state / f"mtty-{version}"
    with locked(state / f"{place.name}.starting"):
        if not (place / "mtty.ko").exists():
            with tempfile.TemporaryDirectory(dir=state) as directory:
                built = _build(version, Path(directory))
                place.mkdir(exist_ok=True)
                shutil.copy(built, place)
    return place


def _build(version: str, directory: Path) -> Path:
    abi, flavor = version.rsplit("-", 1)
    source = f"linux-source-{'.'.join(version.split('.')[:2])}"
    packages = [f"linux-headers-{version}", f"linux-headers-{abi}-common", source.replace("source", "kbuild"), source]
    _run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *packages], directory)
    for package in directory.glob("*.deb"):
        _run(["dpkg", "-x", package.name, "."], directory)
        package.unlink()
    sources = directory / "usr/src"
    makefile = sources / f"linux-headers-{abi}-{flavor}" / "Makefile"
    makefile.write_text(re.sub(r"(?<=include )/usr/src", str(sources), makefile.read_text()))
    member = f"{source}/samples/vfio-mdev/mtty.c"
    _run(["tar", "-xf", f"usr/src/{source}.tar.xz", member], directory)
    module = directory / "module"
    module.mkdir()
    shutil.move(directory / member, module)
    (module / "Makefile").write_text("obj-m := mtty.o\n")
    _run(["make", "-s", "-C", str(makefile.parent), f"M={module}", "modules"], directory)
    return module / "mtty.ko"


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise ServerMissing(f"the sample mtty cannot be had: {' '.join(command)}: {done.stderr[-300:]}")
