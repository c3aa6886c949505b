"""``openstack``, imported once: each command is a fork. Run by .venv-clients; started by `clients.Clients`."""

import json
import os
import signal
import socket
import sys
import warnings

warnings.simplefilter("ignore")


def main(path: str) -> None:
    import openstackclient.shell  # after the warnings were turned off

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{path}.new")
    listening.listen()
    os.rename(f"{path}.new", path)  # noqa: PTH104 - nothing else of pathlib is needed here
    while True:
        asked, _ = listening.accept()
        if os.fork() == 0:
            serve(asked, openstackclient.shell.main)
        asked.close()


def serve(asked, shell):
    """In the fork: as if it had been started like that."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status = 99
    try:
        size, streams, _, _ = socket.recv_fds(asked, 4, 3)
        words, directory, environment = json.loads(exactly(asked, int.from_bytes(size, "big")))
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["openstack", *words]
        try:
            status = int(shell(words) or 0)
        except SystemExit as ended:
            status = int(ended.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        asked.sendall(bytes([status & 0xFF]))
        os._exit(0)


def exactly(asked, size):
    got = b""
    while len(got) < size:
        part = asked.recv(size - len(got))
        if not part:
            break
        got += part
    return got


main(sys.argv[1])
