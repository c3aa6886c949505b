"""`moorage up`: a supervisor of the worker process (`moorage.cli.serve`), in the foreground."""

import ctypes
import dataclasses
import math
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

import click

from moorage.cli.state import (
    CONFIG_VARIABLE,
    STARTED_FROM_VARIABLE,
    config_option,
    open_or_make_config,
    running_path,
    take_state,
)
from moorage.config import Config, render_config
from moorage.core.errors import StartError

_PR_SET_PDEATHSIG = 1
#: Seconds after SIGTERM, in addition to [server] drain_s, before the worker is killed. Whole seconds, for `alarm`.
_STOP_TIMEOUT_S = 15
#: What both processes handle, each in its own way.
_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


@click.command()
@config_option
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on; overrides the configuration.")
@click.option("--adjustable-clock", is_flag=True, help="Start a rehearsal whose clock `moorage clock advance` moves.")
def up(config_path: Path | None, port: int | None, *, adjustable_clock: bool) -> None:
    """Run Moorage in the foreground until Ctrl-C.

    The first start writes a configuration file, SQLite databases and users with random passwords. By default the plane
    has a simulated host and a network.
    """
    # All files written from here on, databases and logs included, are readable by this user only.
    os.umask(0o077)
    config = open_or_make_config(config_path, port=port, clock="adjustable" if adjustable_clock else None)
    with take_state(config.state):
        listener = _bind(config)
        is_first_start = not running_path(config).exists()
        _hand_to_worker(config)
        _serve(config, listener, is_first_start=is_first_start)


def _bind(config: Config) -> socket.socket:
    """The listening socket. It is bound now and accepts clients only when the worker can answer them."""
    address = (config.server.address, config.server.port)
    listener = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise StartError(
            f"cannot listen on {address[0]}:{address[1]}: {error.strerror}; "
            "another plane may be running there: stop it, or use another --port"
        ) from error
    return listener


def _hand_to_worker(config: Config) -> None:
    """Writes the current options, including those from the command line, to a file for the worker."""
    running = running_path(config)
    here = dataclasses.replace(config, plane=dataclasses.replace(config.plane, state_path="."))
    running.write_text(render_config(here), encoding="utf-8")
    os.environ[CONFIG_VARIABLE] = str(running)
    os.environ[STARTED_FROM_VARIABLE] = str(config.source)
    _failed(config).unlink(missing_ok=True)


def _failed(config: Config) -> Path:
    """The file in which the worker writes why it does not start."""
    return config.state / "failed"


def _serve(config: Config, listener: socket.socket, *, is_first_start: bool) -> None:
    supervisor = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # they wait until each process has its own handlers
    worker = os.fork()  # no thread runs in this process
    if not worker:
        _become_worker(supervisor)
        _run_worker(listener, is_first_start=is_first_start)
    listener.close()
    if _supervise(worker, _STOP_TIMEOUT_S + math.ceil(max(0.0, config.server.drain_s))):
        click.echo("Moorage has stopped; its state is kept.", err=True)
        return
    failed = _failed(config)
    see_log = f"; see {config.log}" if config.log else ""
    message = failed.read_text(encoding="utf-8") if failed.exists() else f"the worker process has died{see_log}"
    raise StartError(message)


def _supervise(worker: int, patience_s: int) -> bool:
    """Waits for the worker to exit; returns whether it was asked to. Forwards SIGTERM, Ctrl-C and SIGHUP (reload)."""
    began_with_terminal = _has_terminal()
    is_told = False

    def end(*_: object) -> None:
        nonlocal is_told
        if not is_told:
            is_told = True
            signal.alarm(patience_s)
        os.kill(worker, signal.SIGTERM)

    def reload(*_: object) -> None:
        if began_with_terminal and not _has_terminal():
            end()
        else:
            os.kill(worker, signal.SIGHUP)

    signal.signal(signal.SIGALRM, lambda *_: os.kill(worker, signal.SIGKILL))
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGHUP, reload)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    # The worker is not reaped yet, so no other process can have its pid when the alarm kills it.
    os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
    signal.alarm(0)
    return is_told


def _run_worker(listener: socket.socket, *, is_first_start: bool) -> NoReturn:
    try:
        from moorage.cli.serve import run_worker

        run_worker(listener, is_first_start=is_first_start)
    except SystemExit:  # the reason is in the file that the supervisor reads
        os._exit(1)
    except BaseException:  # noqa: BLE001 - top of the process: no code of the supervisor may run in the worker
        sys.excepthook(*sys.exc_info())
        os._exit(1)


def _has_terminal() -> bool:
    """Whether there is a terminal. A plane started in one ends with it; under a service manager there is none."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _become_worker(supervisor: int) -> None:
    """Resets the signals, so that the supervisor's handlers do not run in the worker. Makes the kernel kill the worker
    if the supervisor is killed, so that no worker is left that holds the port and the databases.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # SIGINT stays blocked: a terminal sends Ctrl-C to both processes, and the supervisor then sends SIGTERM.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS - {signal.SIGINT})
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
