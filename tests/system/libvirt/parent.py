"""Starts programs and adopts the processes that they leave behind, so that ended processes disappear at once.

QEMU makes itself a child of the machine's first process, and libvirtd waits until no process of a guest is left. In
many containers that first process reaps its children every other second, or never.

Standard input has one JSON document per line: ``{"command": [...], "out": FILE}``. The answer to each is the pid of the
new process, which leads its own session. All of them outlive this one, which ends with its standard input.
"""

import ctypes
import json
import os
import signal
import sys

_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel then does not keep ended processes for their parent
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(order["command"], order["out"])
        print(pid, flush=True)


def _become(command: list[str], out: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    log = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
        os.dup2(number, target)
    try:
        os.execvp(command[0], command)
    finally:
        os._exit(127)


if __name__ == "__main__":
    main()
