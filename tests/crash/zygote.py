"""Starts `moorage up` many times: this process imports all modules once, and each start is a fork of it.

After the fork runs the command itself, with its configuration file, supervisor and worker.

usage: zygote PACKAGE ...    imports these packages

Standard input has one JSON document per line: ``{"config": FILE, "log": FILE, "alive": FIFO, "plan": {...} or null,
"bounds": {...}, "effects": DIRECTORY or null}``. `bounds` replaces constants of `moorage.db.timeouts`. `plan` and
`effects` say where to die (`faults`, `effects`). The answer to each line is the pid of the new process, which leads its
own group. The process and its children keep `alive` open and write their point of death to it, so its reader sees the
end of file when the last of them is dead.
"""

import ctypes
import importlib
import json
import os
import pkgutil
import signal
import sys
from pathlib import Path

from moorage.db import timeouts
from tests.crash import effects
from tests.crash.faults import Plan, install

_PR_SET_PDEATHSIG = 1


def main() -> None:
    _import_all()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(order)
        print(pid, flush=True)


def _import_all() -> None:
    for package in map(importlib.import_module, sys.argv[1:]):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".migrations" not in module.name and "libvirt" not in module.name:
                importlib.import_module(module.name)
    for name in ("moorage.wiring", "alembic.migration", "psycopg", "pymysql", "sqlalchemy.dialects.sqlite.pysqlite",
                 "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.mysql.pymysql"):  # fmt: skip
        importlib.import_module(name)


def _become(order: dict) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a test that is killed leaves nothing behind
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    alive = os.open(order["alive"], os.O_WRONLY)
    for number, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(number, target)
    for name, value in order["bounds"].items():
        setattr(timeouts, name, value)
    if order["plan"]:
        install(Plan(**order["plan"]), alive)
    if order["effects"]:
        effects.install(Path(order["effects"]), alive)
    status = 1
    try:
        from moorage.cli.main import main as moorage

        sys.argv = ["moorage", "up", "--config", order["config"]]
        moorage()
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
