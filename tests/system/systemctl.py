"""A stand-in for ``systemctl`` on a machine of the tests that systemd does not run: it starts a unit's program.

It knows ``enable [--now]``, ``start``, ``restart``, ``is-active`` and ``daemon-reload``, and reads from the installed
unit the program, its environment, its user and its state directory. A start waits until the program says that it is
ready, as ``Type=notify`` does. It does not restrict the program, and does not start it again.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

DIRECTORIES = ("etc/systemd/system", "usr/lib/systemd/system")
READY_TIMEOUT_S = 60
#: Started by a command of their own, because their units need more than is read here.
COMMANDS = {"networking": ["ifup", "-a"]}


def main(verb: str, *words: str) -> int:
    names = [word.removesuffix(".service") for word in words if not word.startswith("-")]
    if verb == "is-active":
        return 0 if all(pid_of(name) for name in names) else 3
    if verb in {"start", "restart"} or (verb == "enable" and "--now" in words):
        for name in names:
            if verb == "restart":
                stop(name)
            start(name)
    elif verb not in {"enable", "daemon-reload"}:
        sys.exit(f"this stand-in for systemctl has no {verb}")
    return 0


def pid_of(name: str) -> int | None:
    path = Path(f"/run/{name}.started")
    if path.exists() and Path("/proc", pid := path.read_text()).exists():
        return int(pid)
    return None


def stop(name: str) -> None:
    if pid := pid_of(name):
        os.kill(pid, signal.SIGTERM)
        while pid_of(name):
            time.sleep(0.02)


def start(name: str) -> None:
    if name in COMMANDS:
        subprocess.run(COMMANDS[name], check=True)
        return
    options = options_of(name)
    variables = dict(one.split("=", 1) for text in options.get("Environment", ()) for one in shlex.split(text))
    command = [word for text in shlex.split(options["ExecStart"][-1]) for word in expanded(text, variables)]
    user = options["User"][-1] if "User" in options else None
    state = Path("/var/lib", options.get("StateDirectory", [""])[-1])
    if "StateDirectory" in options:
        mode = options.get("StateDirectoryMode", ["0755"])[-1]
        subprocess.run(["install", "-d", "-m", mode, "-o", user or "root", "-g", user or "root", state], check=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, Path(f"/var/log/{name}.log").open("ab") as log:
        address = f"/run/{name}.notify"
        Path(address).unlink(missing_ok=True)
        ready.bind(address)
        Path(address).chmod(0o777)
        process = subprocess.Popen(
            command, env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "NOTIFY_SOCKET": address, **variables},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            user=user, group=user, extra_groups=[] if user else None, umask=int(options.get("UMask", ["0022"])[-1], 8),
        )  # fmt: skip
        Path(f"/run/{name}.started").write_text(str(process.pid))
        ready.settimeout(0.2)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            if process.poll() is not None:
                sys.exit(f"{name} ended: {Path(log.name).read_text()[-2000:]}")
            if time.monotonic() > deadline:
                sys.exit(f"{name} is not ready: {Path(log.name).read_text()[-2000:]}")
            try:
                if b"READY=1" in ready.recv(4096):
                    return
            except TimeoutError:
                continue


def expanded(word: str, variables: dict[str, str]) -> list[str]:
    """A word ``$NAME`` becomes any number of words, as in a unit."""
    return shlex.split(variables.get(word[1:], "")) if word.startswith("$") else [word]


def options_of(name: str) -> dict[str, list[str]]:
    """{option: its values}, of the unit and then its drop-ins; an empty value forgets those before it."""
    unit = next(path for top in DIRECTORIES if (path := Path("/", top, f"{name}.service")).exists())
    found: dict[str, list[str]] = {}
    for path in [unit, *sorted(Path("/etc/systemd/system", f"{name}.service.d").glob("*.conf"))]:
        for option, value in re.findall(r"^(\w+)=(.*)$", path.read_text(), re.MULTILINE):
            found[option] = [*found.get(option, []), value] if value else []
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
