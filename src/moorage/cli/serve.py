"""The worker process of `moorage up`: builds the plane and serves it until SIGTERM."""

import gc
import logging
import os
import shlex
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from moorage.cli.state import CONFIG_VARIABLE, STARTED_FROM_VARIABLE, default_config_path
from moorage.config import DASHBOARD_PATH, ENDPOINT_PATHS, Config, load_config
from moorage.core.errors import MoorageError
from moorage.telemetry import logs
from moorage.wire.server.http_server import HttpServer
from moorage.wire.server.limits import ServerLimits
from moorage.wire.server.process_setup import (
    Signals,
    freeze_heap,
    keep_freed_memory,
    notify_service_manager,
    raise_file_limit,
)
from moorage.wire.server.tls import ServerTls

if TYPE_CHECKING:
    from moorage.wiring import Plane

log = logging.getLogger(__name__)


#: Seconds to finish answers in progress. The supervisor waits a little longer.
STOP_S = 10.0


def run_worker(listener: socket.socket, *, is_first_start: bool) -> NoReturn:
    """The life of the process: serve on this bound socket until SIGTERM. The first start shows its progress."""
    with _progress(is_first_start=is_first_start) as on_step:
        config, plane, tls = _start_plane(on_step)
    signals = Signals()
    raise_file_limit()
    server = HttpServer(
        plane.app,
        listener,
        threads=config.server.threads,
        limits=_limits(config),
        admission=plane.admission,
        tls=tls,
    )
    server.start()
    click.echo(_banner(config))
    notify_service_manager("READY=1")
    signals.wait_for_sigterm(plane.reload)
    notify_service_manager("STOPPING=1")
    plane.drain()
    if config.server.drain_s > 0:
        server.retire()
        time.sleep(config.server.drain_s)
    server.stop(STOP_S)
    plane.stop()
    logging.shutdown()
    # Work still in progress, such as programming a region, must not delay the exit. It is interrupted as by SIGKILL and
    # resumed at the next start.
    os._exit(0)


def _limits(config: Config) -> ServerLimits:
    server = config.server
    return ServerLimits(
        head_timeout_s=server.head_timeout_s,
        idle_timeout_s=server.idle_timeout_s,
        min_rate_bytes_s=server.min_rate_bytes_s,
        stall_s=server.stall_s,
        public_stall_s=server.public_stall_s,
        buffer_bytes=server.buffer_bytes,
        connections=server.connections,
        uploads=server.uploads,
    )


@contextmanager
def _progress(*, is_first_start: bool) -> Iterator[Callable[[str, int, int], object]]:
    if not is_first_start:
        yield lambda _step, _done, _total: None
        return
    from moorage.cli.output import progress_or_lines  # imports Rich

    with progress_or_lines("First start") as on_step:
        yield on_step


def _start_plane(on_step: Callable[[str, int, int], object]) -> "tuple[Config, Plane, ServerTls | None]":
    """Loads the configuration and starts the plane; writes the reason of a failure to the file ``failed``."""
    gc.disable()  # what a start makes is there to stay; `freeze_heap` ends it
    from moorage.wiring import build_plane

    config = load_config(Path(os.environ[CONFIG_VARIABLE]))
    _open_log(config)
    keep_freed_memory()
    try:
        tls = None if config.certificate is None else ServerTls(*config.certificate)
        plane = build_plane(config, on_step=on_step)
        if tls is not None:
            plane.reloads.append(tls.reload)
        on_step("the start of all services", len(config.runs), len(config.runs))
        plane.start()
    except MoorageError as error:
        log.error("the plane does not start", extra={"reason": error.message})
        raise _record_failure(config, error.message) from error
    except Exception as error:  # the top of a process; people get a sentence, the log has the rest
        log.exception("the plane does not start")
        raise _record_failure(config, f"{type(error).__name__}: {error}; see the log") from error
    freeze_heap()
    return config, plane, tls


def _open_log(config: Config) -> None:
    if config.log is None:
        logs.set_up_logging(config.plane.log_level)
        return
    try:
        logs.set_up_logging(config.plane.log_level, config.log.open("a", encoding="utf-8", buffering=1))
    except OSError as error:
        given = os.environ[STARTED_FROM_VARIABLE]
        raise _record_failure(
            config, f"the log {config.log} cannot be written: {error.strerror}; correct [plane] log_file in {given}"
        ) from error


def _record_failure(config: Config, message: str) -> SystemExit:
    (config.state / "failed").write_text(message, encoding="utf-8")
    return SystemExit(1)


def _banner(config: Config) -> str:
    state = f"Moorage is up, pid {os.getppid()}. State: {config.state}. Press Ctrl-C to stop; no data is lost."
    served = config.runs if config.has_users else config.runs - {"identity"}
    rows = [f"  {name:12} {config.base_url}{path}" for name, path in ENDPOINT_PATHS.items() if name in served]
    if "dashboard" in config.runs:
        rows.append(f"  {'dashboard':12} {config.base_url}{DASHBOARD_PATH}     in a browser")
    return "\n\n".join(filter(None, (state, _way_in(config), "\n".join(rows)))) + "\n"


def _way_in(config: Config) -> str:
    if config.has_users:
        given = Path(os.environ[STARTED_FROM_VARIABLE])
        option = "" if given == default_config_path().resolve() else f" --config {shlex.quote(str(given))}"
        return f'  eval "$(moorage env{option})"     then use the openstack clients'
    return {
        "keystone": f"  Log in to Keystone at {config.identity.keystone_url}",
        "none": "  Everyone who can reach it is an administrator, without a password",
    }.get(config.identity.mode, "")
