"""The agent's systemd unit: installed if it is missing, adapted if it starts another program, and started."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import moorage
from moorage.cli.agent.plan import STATE, PlannedFile
from moorage.cli.doctor.finding import CheckFinding, broken, fine
from moorage.cli.doctor.machine import HostMachine
from moorage.core.errors import StartError

UNIT = "moorage-agent.service"

#: Directories of units below the root, as systemd reads them.
_DIRECTORIES = ("etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")

#: Directories that the unit hides from the agent (`ProtectHome=yes`, `PrivateTmp=yes`).
_HIDDEN = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))  # noqa: S108 - compared with, not used

#: A start of the agent waits for its services; the unit's own limit is 5 min.
START_TIMEOUT_S = 330


def own_program() -> Path:
    """The `moorage` command of this Python environment; Debian's package has a link to it in /usr/bin."""
    program, packaged = Path(sys.executable).with_name("moorage"), Path("/usr/bin/moorage")
    return packaged if packaged.resolve() == program.resolve() else program


def check_hidden(paths: Sequence[Path]) -> Iterator[CheckFinding]:
    """Whether the agent sees these files as a unit."""
    hidden = [path for path in paths if any(path.resolve().is_relative_to(one) for one in _HIDDEN)]
    for path in hidden:
        remedy = "install Moorage in /opt/moorage (python3 -m venv /opt/moorage), and keep files in /etc and /var/lib"
        yield broken("unit", f"{UNIT} cannot see it there (ProtectHome, PrivateTmp)", path, remedy)
    if not hidden:
        yield fine("unit", f"{UNIT} sees the program and its files", paths[0])


def unit_files(machine: HostMachine, program: Path, config: Path, writes: Sequence[Path]) -> list[PlannedFile]:
    """The unit, if none is installed, and a drop-in, if it starts another program or another configuration, or if the
    agent `writes` outside of the unit's state directory.
    """
    installed = [path for name in _DIRECTORIES if (path := machine.root / name / UNIT).exists()]
    own = machine.root / _DIRECTORIES[0]
    text = (installed[0] if installed else _shipped()).read_text(encoding="utf-8")
    command = f"{program} up --config {config}"
    lines = [] if f"ExecStart={command}\n" in text else ["ExecStart=", f"ExecStart={command}"]
    lines += [f"ReadWritePaths={path}" for path in writes if not path.is_relative_to(STATE)]
    files = [] if installed else [PlannedFile(own / UNIT, text.encode(), 0o644)]
    if lines:
        drop_in = "\n".join(["# Written by `moorage agent join`.", "[Service]", *lines, ""])
        files.append(PlannedFile(own / f"{UNIT}.d" / "join.conf", drop_in.encode(), 0o644))
    return files


def _shipped() -> Path:
    """The unit in the installed wheel, or in a checkout."""
    checkout = Path(moorage.__file__).parents[2] / "packaging" / "systemd" / UNIT
    found = next(
        (path for path in (Path(sys.prefix) / "share/moorage/systemd" / UNIT, checkout) if path.exists()), None
    )
    if found is None:
        raise StartError(f"{UNIT} is missing in this installation of Moorage: install its wheel or package again")
    return found


def start_unit(*, is_changed: bool) -> str:
    """Starts the agent, now and with the machine; restarts it if `is_changed`. Returns what was done.

    Raises `StartError` with the unit's last lines if it does not start.
    """
    _systemctl("daemon-reload")
    is_active = _systemctl("is-active", "--quiet", UNIT, may_fail=True)
    if is_active and not is_changed:
        _systemctl("enable", "--quiet", UNIT)
        return f"{UNIT} runs already"
    _systemctl("enable", "--quiet", UNIT)
    _systemctl("restart", UNIT)
    return f"{UNIT} is {'restarted' if is_active else 'started'}, and starts with the machine"


def _systemctl(*words: str, may_fail: bool = False) -> bool:
    command = ["systemctl", *words]
    try:
        done = subprocess.run(  # noqa: S603 - no shell; all words are those of this module
            command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartError(f"{' '.join(command)}: {error}; see `journalctl --unit {UNIT}`") from error
    if done.returncode and not may_fail:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise StartError(
            f"{' '.join(command)} failed: {said[0] if said else f'exit code {done.returncode}'}; see "
            f"`journalctl --unit {UNIT} --lines 20`. This command can be repeated"
        )
    return done.returncode == 0
