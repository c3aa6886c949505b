"""`moorage up`: a supervisor that serves the plane's WSGI application with granian, in the foreground."""

import dataclasses
import os
import socket
from pathlib import Path

import click

from moorage.cli.state import CONFIG_VARIABLE, config_option, open_or_make_config
from moorage.config import Config, render
from moorage.core.errors import StartError


@click.command()
@config_option
@click.option("--port", type=click.IntRange(1, 65535), help="Listen here instead of where the configuration says.")
@click.option("--adjustable-clock", is_flag=True, help="A rehearsal: `moorage clock advance` moves the time.")
def up(config_path: Path | None, port: int | None, *, adjustable_clock: bool) -> None:
    """Run the plane in the foreground until Ctrl-C.

    The first start makes a configuration with a simulated host, SQLite databases and users with random passwords.
    """
    config = open_or_make_config(config_path, port=port, clock="adjustable" if adjustable_clock else None)
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
    running = config.state / "running.conf"
    running.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    running.write_text(render(_rebased(config)), encoding="utf-8")
    os.environ[CONFIG_VARIABLE] = str(running)


def _rebased(config: Config) -> Config:
    """`config` for a file that lies in the state directory itself."""
    return dataclasses.replace(config, plane=dataclasses.replace(config.plane, state_path=str(config.state)))


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
    try:
        server.serve()
    except FatalError as error:
        raise StartError(f"the server could not be started: {error}") from error
    failed = config.state / "failed"
    if failed.exists():
        raise StartError(failed.read_text(encoding="utf-8"))
    click.echo("Moorage ended; its state is kept.", err=True)
