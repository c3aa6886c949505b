"""Fill a virtual environment from requirements files with hashes, by uv, or by pip where uv cannot.

usage: .venv/bin/python tools/install.py --into DIRECTORY --name NAME [--checkout] LOCK...

uv is some ten times quicker (all environments of the tests in 10 s instead of 90 s on two cores) but does not read
pip's configuration; where a mirror, a proxy or a certificate that only pip knows is needed, pip does the work.
Standard library only: it runs before anything is installed.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

UV = Path(sys.executable).parent / "uv"
PIP = [sys.executable, "-m", "pip"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill a virtual environment from requirements files with hashes.")
    parser.add_argument("--into", required=True, type=Path, help="the virtual environment; made if absent")
    parser.add_argument("--name", required=True, help="what is installed, for the progress lines")
    parser.add_argument("--checkout", action="store_true", help="install this checkout too, editable")
    parser.add_argument("locks", nargs="+", metavar="LOCK", type=Path, help="requirements files with hashes")
    asked = parser.parse_args()

    print(f"installing {asked.name} ...", flush=True)
    started = time.monotonic()
    python = asked.into / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", asked.into], check=True)
    install(python, ["--require-hashes", *(f"--requirement={lock}" for lock in asked.locks)])
    if asked.checkout:
        # The build tool is one of the pinned packages: nothing is fetched for the build.
        install(python, ["--no-deps", "--no-build-isolation", "--editable=."])
    packages = sum(line[:1].isalnum() for lock in asked.locks for line in lock.read_text().splitlines())
    print(f"installed {asked.name}: {packages} packages, {time.monotonic() - started:.1f} s", flush=True)


def install(python: Path, what: list[str]) -> None:
    """Exits with the installers' own words if none of them succeeds."""
    failures = []
    # Compiled here and not at the first import: PYTHONDONTWRITEBYTECODE, which many machines set, would make every
    # run of the openstack command pay for it again (2.4 s instead of 0.6 s).
    for command in ([UV, "pip", "install", "--quiet", "--compile-bytecode", "--python", python], pip(python)):
        try:
            done = subprocess.run([*command, *what], env=environment(), capture_output=True, text=True, check=False)
        except OSError as error:  # no uv for this platform
            failures.append(str(error))
            continue
        if done.returncode == 0:
            return
        failures.append(done.stdout + done.stderr)
    sys.exit("error: neither uv nor pip could install it\n" + "\n".join(failures))


def pip(python: Path) -> list[str | Path]:
    # -qq: one -q leaves a warning per package about each extra index that is configured and absent.
    return [*PIP, "--python", python, "install", "-qq", "--disable-pip-version-check"]


def environment() -> dict[str, str]:
    """Ours, with pip's index and certificate also in uv's words."""
    own = dict(os.environ)
    told = {"SSL_CERT_FILE": own.get("PIP_CERT"), "UV_DEFAULT_INDEX": own.get("PIP_INDEX_URL") or configured_index()}
    return {name: value for name, value in told.items() if value} | own


def configured_index() -> str:
    """Where this machine's pip is told to look, asked of pip itself (the name of its setting; no address is kept
    here): uv does not read pip's configuration. Empty: nowhere but its default.
    """
    done = subprocess.run([*PIP, "config", "get", "global.index-url"], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    main()
