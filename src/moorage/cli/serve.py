"""The worker process of `moorage up`: granian calls `application` once and serves what it answers."""

import ctypes
import logging
import os
import signal
import sys
from multiprocessing.util import Finalize
from pathlib import Path

import click

from moorage.cli.client import base_url
from moorage.cli.state import CONFIG_VARIABLE, default_config_path
from moorage.config import ENDPOINT_PATHS, Config, load
from moorage.core.errors import MoorageError
from moorage.telemetry import logs
from moorage.wire.app import WsgiApp
from moorage.wire.serving import forget_variables_like_headers

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1


def application() -> WsgiApp:
    """The started plane. What keeps it from starting is left in ``failed`` in the state directory."""
    from moorage.wiring import build_plane

    _die_with_supervisor()
    forget_variables_like_headers(os.environ)
    config = load(Path(os.environ[CONFIG_VARIABLE]))
    if config.plane.log_file:
        logs.set_up(
            config.plane.log_level, (config.state / config.plane.log_file).open("a", encoding="utf-8", buffering=1)
        )
    else:
        logs.set_up(config.plane.log_level)
    failed = config.state / "failed"
    failed.unlink(missing_ok=True)
    try:
        plane = build_plane(config)
        plane.start()
    except MoorageError as error:
        log.error("the plane does not start", extra={"reason": error.message})  # noqa: TRY400 - the message says it all
        failed.write_text(error.message, encoding="utf-8")
        os.kill(os.getppid(), signal.SIGTERM)
        raise SystemExit(1) from error
    click.echo(_banner(config))
    # granian ends its worker through multiprocessing, which runs finalizers but not atexit.
    Finalize(None, plane.stop, exitpriority=10)
    return plane.app


def _banner(config: Config) -> str:
    url = base_url(config)
    own = config.state / "moorage.conf"
    option = "" if own == default_config_path().resolve() else f" --config {own}"
    rows = "\n".join(f"  {name:12} {url}{path}" for name, path in ENDPOINT_PATHS.items() if name in config.runs)
    return (
        f"Moorage is up, pid {os.getppid()}. State: {config.state}. Ctrl-C ends it; nothing is lost.\n\n"
        f'  eval "$(moorage env{option})"     then use the openstack clients\n\n{rows}\n'
    )


def _die_with_supervisor() -> None:
    """A supervisor killed with SIGKILL must not leave a worker behind that holds the port and the databases."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
