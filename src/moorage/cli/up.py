"""`moorage up`: a supervisor that serves the plane's WSGI application with granian, in the foreground."""

import ctypes
import dataclasses
import os
import signal
import socket
import sys
from pathlib import Path

import click

from moorage.cli.state import (
    CONFIG_VARIABLE,
    STARTED_FROM_VARIABLE,
    config_option,
    open_or_make_config,
    running_path,
    take_state,
)
from moorage.config import Config, render
from moorage.core.errors import StartError

_PR_SET_PDEATHSIG = 1


@click.command()
@config_option
@click.option("--port", type=click.IntRange(1, 65535), help="Listen here instead of where the configuration says.")
@click.option("--adjustable-clock", is_flag=True, help="A rehearsal: `moorage clock advance` moves the time.")
def up(config_path: Path | None, port: int | None, *, adjustable_clock: bool) -> None:
    """Run the plane in the foreground until Ctrl-C.

    The first start makes a configuration with a simulated host, SQLite databases and users with random passwords.
    """
    # What is written here from now on, databases and logs too, is for this user alone.
    os.umask(0o077)
    config = open_or_make_config(config_path, port=port, clock="adjustable" if adjustable_clock else None)
    with take_state(config.state):
        _check_port(config)
        _hand_to_worker(config)
        _serve(config)


def _check_port(config: Config) -> None:
    address = (config.server.address, config.server.port)
    with socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise StartError(
                f"cannot listen on {address[0]}:{address[1]}: {error.strerror}; "
                "another plane may be running there: stop it, or choose another --port"
            ) from error


def _hand_to_worker(config: Config) -> None:
    """The worker reads the options in force from a file: command-line options are part of them.

    granian forks its worker: no thread may run in this process before that.
    """
    running = running_path(config)
    running.write_text(render(_rebased(config)), encoding="utf-8")
    os.environ[CONFIG_VARIABLE] = str(running)
    os.environ[STARTED_FROM_VARIABLE] = str(config.source)
    _failed(config).unlink(missing_ok=True)


def _rebased(config: Config) -> Config:
    """`config` for a file that lies in the state directory itself."""
    return dataclasses.replace(config, plane=dataclasses.replace(config.plane, state_path=str(config.state)))


def _failed(config: Config) -> Path:
    """Where the worker leaves what keeps it from starting."""
    return config.state / "failed"


def _serve(config: Config) -> None:
    from granian.constants import HTTPModes, Interfaces
    from granian.errors import FatalError
    from granian.server import Server

    server = Server(
        "moorage.cli.serve:application",
        factory=True,
        address=config.server.address,
        port=config.server.port,
        interface=Interfaces.WSGI,
        http=HTTPModes.http1,
        websockets=False,
        # One worker process: the duties (agent, runner) live in it, see moorage.cli.serve.
        workers=1,
        blocking_threads=config.server.threads,
        workers_kill_timeout=15,
        log_enabled=False,
    )
    supervisor = os.getpid()
    os.register_at_fork(after_in_child=lambda: _become_worker(supervisor))
    try:
        server.serve()
    except FatalError as error:
        raise StartError(f"the server could not be started: {error}") from error
    except SystemExit as ended:  # granian's way to say that the worker ended by itself
        failed = _failed(config)
        log = config.plane.log_file and f"; see {config.state / config.plane.log_file}"
        message = failed.read_text(encoding="utf-8") if failed.exists() else f"the worker process has died{log}"
        raise StartError(message) from ended
    click.echo("Moorage ended; its state is kept.", err=True)


def _become_worker(supervisor: int) -> None:
    """Right after the fork: until granian takes over, some 0.5 s later, signals must not end in handlers that were
    meant for the supervisor; and a supervisor killed with SIGKILL must not leave a worker behind that holds the port
    and the databases.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Ctrl-C in a terminal goes to both, and the supervisor sends SIGTERM then. Blocked, not ignored: granian sets
    # handlers of its own, and one signal that comes while the other is handled leaves its worker hanging (measured).
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
