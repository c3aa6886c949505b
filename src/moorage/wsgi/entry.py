"""A plane behind somebody else's WSGI server, which has processes, threads and signals of its own."""

import atexit
import dataclasses
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moorage.config import DASHBOARD_PATH, Config, load
from moorage.core.errors import StartError
from moorage.telemetry import logs
from moorage.wiring import Plane, build_plane

log = logging.getLogger(__name__)

CONFIG_VARIABLE = "MOORAGE_CONFIG"


class Application:
    """A WSGI callable. Made at import; made anew in a process that a server forks from the one that imported it."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._prefix = DASHBOARD_PATH if service == "dashboard" else f"/{service}"
        self._lock = threading.Lock()
        self._pid = 0
        self._plane: Plane | None = None
        self._made()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # A server that mounts us below our own name has taken it from the path; we look for it there.
        root: str = environ.get("SCRIPT_NAME", "")
        if root.endswith(self._prefix):
            environ["SCRIPT_NAME"] = root.removesuffix(self._prefix)
            environ["PATH_INFO"] = self._prefix + environ.get("PATH_INFO", "")
        return self._made().app(environ, start_response)

    def _made(self) -> Plane:
        if self._plane is None or self._pid != os.getpid():
            with self._lock:
                if self._plane is None or self._pid != os.getpid():
                    self._plane, self._pid = _started(self._service), os.getpid()
        return self._plane


def _started(service: str) -> Plane:
    config = _config(service)
    logs.set_up(config.plane.log_level)
    plane = build_plane(config)
    plane.prepare()
    threading.Thread(
        target=_duties, args=(plane, config.state / f"duties-{service}.lock"), name="duties", daemon=True
    ).start()
    atexit.register(plane.stop)
    return plane


def _config(service: str) -> Config:
    """Of the file that MOORAGE_CONFIG names, with this service alone. Raises `StartError`."""
    path = os.environ.get(CONFIG_VARIABLE)
    if not path:
        raise StartError(f"{CONFIG_VARIABLE} is not set; let it name the configuration file of {service}")
    config = load(Path(path))
    services = {service}
    # Tokens are judged where users are kept; the dashboard judges none, it asks identity as a browser's client.
    if service != "dashboard" and config.identity.mode in ("embedded", "http_basic"):
        services.add("identity")
    os.umask(0o077)
    config.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    return dataclasses.replace(config, plane=dataclasses.replace(config.plane, services=",".join(sorted(services))))


def _duties(plane: Plane, path: Path) -> None:
    """Wait until no other process of this state directory runs them; the lock ends with the process."""
    lock = path.open("w", encoding="ascii")
    fcntl.flock(lock, fcntl.LOCK_EX)
    log.info("the duties of this state directory run here now")
    plane.start_duties()
    plane.stops.append(lock.close)
