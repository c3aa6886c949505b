"""The worker process of `moorage up`: granian calls `application` once and serves what it answers."""

import logging
import os
import shlex
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moorage.cli.client import base_url
from moorage.cli.state import CONFIG_VARIABLE, STARTED_FROM_VARIABLE, default_config_path
from moorage.config import ENDPOINT_PATHS, Config, load
from moorage.core.errors import MoorageError
from moorage.telemetry import logs
from moorage.wire.app import WsgiApp
from moorage.wire.serving import forget_variables_like_headers, keep_memory, keep_what_is_there, when_asked_to_end

if TYPE_CHECKING:
    from moorage.wiring import Plane

log = logging.getLogger(__name__)


def application() -> WsgiApp:
    """The started plane. What keeps it from starting is left in ``failed`` in the state directory."""
    from moorage.wiring import build_plane

    forget_variables_like_headers(os.environ)
    config = load(Path(os.environ[CONFIG_VARIABLE]))
    if config.plane.log_file:
        logs.set_up(
            config.plane.log_level, (config.state / config.plane.log_file).open("a", encoding="utf-8", buffering=1)
        )
    else:
        logs.set_up(config.plane.log_level)
    keep_memory()
    try:
        plane = build_plane(config)
        plane.start()
    except MoorageError as error:
        log.error("the plane does not start", extra={"reason": error.message})  # noqa: TRY400 - the message says it all
        raise _refused(config, error.message) from error
    except Exception as error:  # the top of a process; people get a sentence, the log has the rest
        log.exception("the plane does not start")
        raise _refused(config, f"{type(error).__name__}: {error}; the log says where") from error
    keep_what_is_there()
    when_asked_to_end(plane.drain)
    click.echo(_banner(config))
    # granian ends its worker through multiprocessing, which runs finalizers but not atexit.
    Finalize(None, _end, args=(plane,), exitpriority=10)
    return plane.app


def _end(plane: "Plane") -> None:
    """What still works then (a region that is being programmed, say) must not keep the process: it is cut off as by a
    kill, and taken up again at the next start.
    """
    plane.stop()
    logging.shutdown()
    os._exit(0)


def _refused(config: Config, message: str) -> SystemExit:
    (config.state / "failed").write_text(message, encoding="utf-8")
    return SystemExit(1)


def _banner(config: Config) -> str:
    state = f"Moorage is up, pid {os.getppid()}. State: {config.state}. Ctrl-C ends it; nothing is lost."
    served = config.runs if config.has_users else config.runs - {"identity"}
    rows = [f"  {name:12} {base_url(config)}{path}" for name, path in ENDPOINT_PATHS.items() if name in served]
    return "\n\n".join(filter(None, (state, _way_in(config), "\n".join(rows)))) + "\n"


def _way_in(config: Config) -> str:
    if config.has_users:
        given = Path(os.environ[STARTED_FROM_VARIABLE])
        option = "" if given == default_config_path().resolve() else f" --config {shlex.quote(str(given))}"
        return f'  eval "$(moorage env{option})"     then use the openstack clients'
    return {
        "keystone": f"  Log in to Keystone at {config.identity.keystone_url}",
        "none": "  Everybody who can reach it is admin, without a password",
    }.get(config.identity.mode, "")
