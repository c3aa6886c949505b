"""Programs of Debian packages, unpacked beside the other test servers' state and not installed.

Unpacked, they change nothing for the other programs of the machine: libvirt, for example, filters the traffic of every
guest as soon as a program ``ebtables`` is installed.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from tests import servers
from tests.servers import ServerMissing
from tests.servers import _locked as locked

_TIMEOUT_S = 300


def unpacked(name: str, *packages: str) -> Path:
    """The directory `name` with the contents of the packages, and of those that they need and this machine lacks.

    Raises `ServerMissing` if apt cannot download them.
    """
    state = servers.place()
    place = state / name
    with locked(state / f"{name}.starting"):
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=state) as directory:
                _download(directory, packages)
                found = sorted(Path(directory).glob("*.deb"))
                for package in found:
                    run_or_miss(["dpkg", "-x", str(package), f"{directory}/unpacked"], directory)
                Path(directory, "unpacked").rename(place)
    return place


def wrapped(place: Path, **programs: str) -> Path:
    """A directory with a script of each name, which starts this program below `place` with its own libraries."""
    scripts = place / "wrapped"
    scripts.mkdir(exist_ok=True)
    plugins = next(place.glob("usr/lib/*/xtables"), place)
    for name, program in programs.items():
        script = scripts / name
        part = scripts / f"{name}.{os.getpid()}"
        part.write_text(
            f'#!/bin/sh\nexport LD_LIBRARY_PATH="{libraries_of(place)}" XTABLES_LIBDIR="{plugins}"\n'
            f'exec "{place / program}" "$@"\n'
        )
        part.chmod(0o755)
        part.rename(script)
    return scripts


def libraries_of(place: Path) -> str:
    """The value of ``LD_LIBRARY_PATH`` for the programs of `unpacked` packages."""
    return ":".join(str(path) for path in place.glob("usr/lib/*-linux-gnu"))


def linked_libraries(program: Path, place: Path) -> list[Path]:
    """The libraries and the loader that a program needs."""
    said = subprocess.run(
        ["ldd", program], env={**os.environ, "LD_LIBRARY_PATH": libraries_of(place)},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    if missing := re.findall(r"(\S+) => not found", said):
        raise ServerMissing(f"{program.name} needs {', '.join(missing)}, which apt did not download")
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", said)]


def _download(directory: str, packages: tuple[str, ...]) -> None:
    """The packages themselves also if they are installed: `unpacked` may outlive that."""
    (Path(directory) / "partial").mkdir()
    options = ["-qq", "-o", "APT::Sandbox::User=root", "-o", "DPkg::Lock::Timeout=60"]
    needed = ["--yes", "--download-only", "--no-install-recommends", "-o", f"Dir::Cache::Archives={directory}"]
    commands = (["apt-get", "download", *options], ["apt-get", "install", *options, *needed])
    try:
        for command in commands:
            run_or_miss([*command, *packages], directory)
    except ServerMissing:  # the lists of packages are missing, or too old
        run_or_miss(["apt-get", "update", "-qq"], directory)
        for command in commands:
            run_or_miss([*command, *packages], directory)


def run_or_miss(command: list[str], directory: str) -> None:
    """Raises `ServerMissing` if the command fails."""
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerMissing(f"Debian's packages cannot be had: {error}") from error
    if done.returncode:
        raise ServerMissing(f"Debian's packages cannot be had: {' '.join(command)}: {done.stderr[-300:]}")
