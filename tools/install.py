"""Installs requirements files with hashes into a virtual environment, with uv, or with pip where uv cannot.

usage: .venv/bin/python tools/install.py --into DIRECTORY --name NAME [--checkout] [--built-here]
                                         [--part PACKAGE DIRECTORY] LOCK...

uv is about ten times faster (all environments of the tests in 10 s instead of 90 s on two cores), but does not read
pip's configuration. If a mirror, proxy or certificate is configured only for pip, pip installs the packages.
Uses only the standard library, because it runs before anything is installed.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

UV = Path(sys.executable).parent / "uv"
PIP = [sys.executable, "-m", "pip"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill a virtual environment from requirements files with hashes.")
    parser.add_argument("--into", required=True, type=Path, help="the virtual environment; created if missing")
    parser.add_argument("--name", required=True, help="name of the contents, for the progress lines")
    parser.add_argument("--checkout", action="store_true", help="install this checkout too, editable")
    parser.add_argument(
        "--built-here",
        action="store_true",
        help="build sources with the packages in the environment; fetch nothing more",
    )
    parser.add_argument(
        "--part",
        nargs=2,
        metavar=("PACKAGE", "DIRECTORY"),
        help="of this package install only this directory of its wheel, without what it requires",
    )
    parser.add_argument("locks", nargs="+", metavar="LOCK", type=Path, help="requirements files with hashes")
    asked = parser.parse_args()

    print(f"installing {asked.name} ...", flush=True)
    started = time.monotonic()
    python = asked.into / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", asked.into], check=True)
    options = ["--require-hashes", *(["--no-build-isolation"] if asked.built_here else [])]
    with tempfile.TemporaryDirectory() as scratch:
        locks = asked.locks
        if asked.part:
            package, directory = asked.part
            locks = [split(lock, package, Path(scratch)) for lock in locks]
            install_part(Path(scratch), directory, asked.into)
        install(python, [*options, *(f"--requirement={lock}" for lock in locks)])
    if asked.checkout:
        # The build tool is one of the pinned packages, so nothing is fetched for the build.
        install(python, ["--no-deps", "--no-build-isolation", "--editable=."])
    packages = sum(line[:1].isalnum() for lock in asked.locks for line in lock.read_text().splitlines())
    print(f"installed {asked.name}: {packages} packages, {time.monotonic() - started:.1f} s", flush=True)


def install(python: Path, what: list[str], *, compiled: bool = True) -> None:
    """Exits with the installers' own messages if none of them succeeds.

    `compiled`: compile the modules now and not at the first import. PYTHONDONTWRITEBYTECODE, which many machines set,
    would make every run of the openstack command compile them again (2.4 s instead of 0.6 s); for a single run it is
    not worth it.
    """
    failures = []
    quick = [UV, "pip", "install", "--quiet", *(["--compile-bytecode"] if compiled else []), "--python", python]
    for command in (quick, pip(python)):
        try:
            done = subprocess.run([*command, *what], env=environment(), capture_output=True, text=True, check=False)
        except OSError as error:  # there is no uv for this platform
            failures.append(str(error))
            continue
        if done.returncode == 0:
            return
        failures.append(done.stdout + done.stderr)
    sys.exit("error: neither uv nor pip could install it\n" + "\n".join(failures))


def split(lock: Path, package: str, scratch: Path) -> Path:
    """Writes the entry of `package` into ``scratch/part.txt``, and the others into the file that it returns."""
    entries = re.split(r"(?<!\\)\n", lock.read_text())
    is_part = [entry.startswith(f"{package}==") for entry in entries]
    for name, wanted in (("part.txt", True), (lock.name, False)):
        text = "\n".join(entry for entry, found in zip(entries, is_part, strict=True) if found == wanted)
        (scratch / name).write_text(f"{text}\n")
    return scratch / lock.name


def install_part(scratch: Path, directory: str, environment_path: Path) -> None:
    """Extracts `directory` of the wheel that ``scratch/part.txt`` names; pip compares its hash."""
    wanted = ["--require-hashes", "--no-deps", "--only-binary=:all:", f"--dest={scratch}"]
    command = [*PIP, "download", "-qq", "--disable-pip-version-check", *wanted]
    done = subprocess.run(
        [*command, f"--requirement={scratch / 'part.txt'}"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"error: pip could not download it\n{done.stdout}{done.stderr}")
    (wheel,) = scratch.glob("*.whl")
    (packages,) = environment_path.glob("lib/python3*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages, [name for name in archive.namelist() if name.startswith(f"{directory}/")])


def pip(python: Path) -> list[str | Path]:
    # -qq: a single -q prints a warning per package about each configured but missing extra index.
    return [*PIP, "--python", python, "install", "-qq", "--disable-pip-version-check"]


def environment() -> dict[str, str]:
    """The environment, with pip's settings translated to uv's names; uv reads none of pip's settings."""
    settings = {**pip_settings(), **{name: value for name, value in os.environ.items() if name.startswith("PIP_")}}
    told = {"SSL_CERT_FILE": settings.get("PIP_CERT"), "UV_DEFAULT_INDEX": settings.get("PIP_INDEX_URL")}
    return {name: value for name, value in told.items() if value} | dict(os.environ)


def pip_settings() -> dict[str, str]:
    """Settings of pip from this machine's configuration files, under the names of the environment variables."""
    done = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False)
    pairs = (line.split("=", 1) for line in done.stdout.splitlines() if line.startswith(("global.", "install.")))
    return {f"PIP_{key.partition('.')[2].replace('-', '_').upper()}": ast.literal_eval(value) for key, value in pairs}


if __name__ == "__main__":
    main()
