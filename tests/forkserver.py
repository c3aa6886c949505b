"""Runs a Python program many times: imports its modules once, and runs each time in a fork of this process.

usage: PYTHON -P forkserver.py SOCKET MODULE ...

`programs.ForkServer` starts it with the interpreter of any environment, so this file imports only the standard library.
``MODULE`` is imported before the first run. ``PACKAGE.*`` means the package and all modules below it, except those with
a name in `LEFT_OUT`. ``entry-points:PREFIX`` means the modules of all entry points in groups with this prefix, and
``MODULE:FUNCTION`` also calls the function, to fill its cache.

A client connects to ``SOCKET``, and sends three file descriptors, the length of a JSON document (4 bytes), and the
document: ``{"program": P, "words": [...], "directory": D, "environment": {...}, "session": bool, "longest_sleep_s":
number or null}``. ``P`` is ``module:function`` (as in a console script), ``-m module`` or ``-c script``. Of the
interpreter's own environment variables, only PYTHONPATH has an effect.
The answer is the pid of the fork, and at its end its exit status as in `subprocess` (4 bytes each, signed). If the
client closes the connection earlier, the fork is killed by SIGKILL, and with `session` its whole process group. The end
of standard input ends the server and all forks.
"""

import atexit
import contextlib
import gc
import importlib
import importlib.metadata
import inspect
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback

#: Not imported: migrations are loaded by `moorage.db.migrations`, a WSGI module builds its application, and libvirt may be missing.
LEFT_OUT = ("migrations", "wsgi", "libvirt")


class Server:
    def __init__(self, path):
        self._selector = selectors.DefaultSelector()
        self._forks = {}  #: {pid: (connection, whether it leads a session)}
        self._children, told = os.pipe()
        os.set_blocking(told, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(f"{path}.new")
        self._listening.listen(64)
        os.rename(f"{path}.new", path)  # noqa: PTH104 - pathlib would be imported for this line alone
        for source, action in (
            (sys.stdin.fileno(), self._end),
            (self._children, self._reap),
            (self._listening, self._accept),
        ):
            self._selector.register(source, selectors.EVENT_READ, action)

    def run(self):
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _accept(self):
        connection, _ = self._listening.accept()
        try:
            size, streams, _, _ = socket.recv_fds(connection, 4, 3)
            order = json.loads(_exactly(connection, int.from_bytes(size, "big")))
        except (OSError, ValueError):  # the client closed the connection while it connected
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            _become(order, streams)
        for stream in streams:
            os.close(stream)
        self._forks[pid] = (connection, order["session"])
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._closed(pid))
        with contextlib.suppress(OSError):
            connection.sendall(pid.to_bytes(4, "big"))

    def _reap(self):
        os.read(self._children, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid in self._forks:
                    connection, _ = self._forks.pop(pid)
                    with contextlib.suppress(OSError):
                        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
                    if connection in self._selector.get_map():
                        self._selector.unregister(connection)
                    connection.close()

    def _closed(self, pid):
        if pid in self._forks:
            self._selector.unregister(self._forks[pid][0])
            self._kill(pid)

    def _kill(self, pid):
        leads_session = self._forks[pid][1]
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if leads_session else os.kill)(pid, signal.SIGKILL)

    def _end(self):
        for pid in self._forks:
            self._kill(pid)
        os._exit(0)


def _become(order, streams):
    """In the fork: sets the process up as if it had been started as a separate program."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if order["session"]:
            os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, max(int(name) for name in os.listdir("/proc/self/fd")) + 1)  # noqa: PTH208 - names only
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - stays open
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - stays open
        sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115 - stays open
        os.chdir(order["directory"])
        os.environ.clear()
        os.environ.update(order["environment"])
        time.tzset()
        tempfile.tempdir = None  # read again, where TMPDIR is set
        sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        gc.enable()
        if order["longest_sleep_s"] is not None:
            _sleep_at_most(order["longest_sleep_s"])
        status = _status_of(order["program"], order["words"])
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - top of the process, nobody above could handle it
        traceback.print_exc()
    finally:
        os._exit(status)


def _sleep_at_most(longest_s):
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(min(seconds, longest_s))


def _status_of(program, words):
    try:
        _run(program, words)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 0xFF
        print(ended.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 - prints and exits like an interpreter on any exception
        traceback.print_exc()
        return 1
    return 0


def _run(program, words):
    kind, _, text = program.partition(" ")
    if kind == "-c":
        sys.argv = ["-c", *words]
        exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
    elif kind == "-m":
        sys.argv = [text, *words]
        runpy.run_module(text, run_name="__main__", alter_sys=True)
    else:
        module, _, name = program.partition(":")
        sys.argv = [module.partition(".")[0], *words]
        main = getattr(importlib.import_module(module), name)
        # `blazar` takes its words when it is imported.
        sys.exit(main(words) if inspect.signature(main).parameters else main())


def _import(name):
    if name.startswith("entry-points:"):
        prefix = name.partition(":")[2]
        found = importlib.metadata.entry_points()
        for module in {
            one.module for group in found.groups if group.startswith(prefix) for one in found.select(group=group)
        }:
            with contextlib.suppress(Exception):  # of an optional feature; its user gets the error at its own import
                importlib.import_module(module)
    elif name.endswith(".*"):
        package = importlib.import_module(name[:-2])
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if not any(part in module.name for part in LEFT_OUT):
                _import(f"{module.name}.*" if module.ispkg else module.name)
    else:
        module, _, function = name.partition(":")
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()


def _exactly(connection, size):
    got = b""
    while len(got) < size:
        part = connection.recv(size - len(got))
        if not part:
            raise OSError("closed")
        got += part
    return got


def main():
    path, *names = sys.argv[1:]
    for name in names:
        _import(name)
    gc.collect()
    gc.freeze()  # garbage collections of forks do not copy imported objects
    Server(path).run()


if __name__ == "__main__":
    main()
