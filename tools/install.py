"""Fill a virtual environment from requirements files with hashes, by uv, or by pip where uv cannot.

usage: .venv/bin/python tools/install.py --into DIRECTORY --name NAME [--checkout] [--built-here] LOCK...

uv is some ten times quicker (all environments of the tests in 10 s instead of 90 s on two cores) but does not read
pip's configuration; where a mirror, a proxy or a certificate that only pip knows is needed, pip does the work.
Standard library only: it runs before anything is installed.
"""

import argparse
import ast
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
    parser.add_argument(
        "--built-here", action="store_true", help="build sources with what the environment has: nothing more is fetched"
    )
    parser.add_argument("locks", nargs="+", metavar="LOCK", type=Path, help="requirements files with hashes")
    asked = parser.parse_args()

    print(f"installing {asked.name} ...", flush=True)
    started = time.monotonic()
    python = asked.into / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", asked.into], check=True)
    options = ["--require-hashes", *(["--no-build-isolation"] if asked.built_here else [])]
    install(python, [*options, *(f"--requirement={lock}" for lock in asked.locks)])
    if asked.checkout:
        # The build tool is one of the pinned packages: nothing is fetched for the build.
        install(python, ["--no-deps", "--no-build-isolation", "--editable=."])
    packages = sum(line[:1].isalnum() for lock in asked.locks for line in lock.read_text().splitlines())
    print(f"installed {asked.name}: {packages} packages, {time.monotonic() - started:.1f} s", flush=True)


def install(python: Path, what: list[str], *, compiled: bool = True) -> None:
    """Exits with the installers' own words if none of them succeeds.

    `compiled`: now and not at the first import. PYTHONDONTWRITEBYTECODE, which many machines set, would make every run
    of the openstack command pay for it again (2.4 s instead of 0.6 s); for a single run it costs more than it saves.
    """
    failures = []
    quick = [UV, "pip", "install", "--quiet", *(["--compile-bytecode"] if compiled else []), "--python", python]
    for command in (quick, pip(python)):
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
    """Ours, with what pip is set to and uv has another word for; uv reads none of pip's settings."""
    settings = {**pip_settings(), **{name: value for name, value in os.environ.items() if name.startswith("PIP_")}}
    told = {"SSL_CERT_FILE": settings.get("PIP_CERT"), "UV_DEFAULT_INDEX": settings.get("PIP_INDEX_URL")}
    return {name: value for name, value in told.items() if value} | dict(os.environ)


def pip_settings() -> dict[str, str]:
    """What this machine's pip is told by its files, under the names of the environment variables that say the same."""
    done = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False)
    pairs = (line.split("=", 1) for line in done.stdout.splitlines() if line.startswith(("global.", "install.")))
    return {f"PIP_{key.partition('.')[2].replace('-', '_').upper()}": ast.literal_eval(value) for key, value in pairs}


if __name__ == "__main__":
    main()
