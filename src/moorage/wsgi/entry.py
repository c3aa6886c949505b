"""A plane behind another WSGI server, which has its own processes, threads and signals."""

import atexit
import dataclasses
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from wsgiref.types import WSGIEnvironment

from moorage.config import DASHBOARD_PATH, Config, load_config
from moorage.core.errors import StartError
from moorage.telemetry import logs
from moorage.wiring import Plane, build_plane

log = logging.getLogger(__name__)

CONFIG_VARIABLE = "MOORAGE_CONFIG"

#: Seconds between two attempts of a process to take over the background tasks.
TASKS_AFTER_S = 1.0


class Application:
    """A WSGI callable. It is built at import, and built again in a process that the server forks after the import.

    It is shut down before such a fork: otherwise a running thread would leave its locks taken forever in the new
    process, and SQLite does not survive a fork with an open database.
    """

    def __init__(self, service: str) -> None:
        self._service = service
        self._prefix = DASHBOARD_PATH if service == "dashboard" else f"/{service}"
        self._lock = threading.Lock()
        self._serving: _Serving | None = None
        self._plane()
        # The new process is probably a worker, so its tasks start without waiting for a first request.
        os.register_at_fork(
            before=self._shut_down, after_in_child=lambda: threading.Thread(target=self._plane, daemon=True).start()
        )
        atexit.register(self._shut_down)

    def __call__(self, environ: WSGIEnvironment, start_response: Callable[..., object]) -> Iterable[bytes]:
        # A server that mounts the application below its own name has removed that name from the path; put it back.
        root: str = environ.get("SCRIPT_NAME", "")
        if root.endswith(self._prefix):
            environ["SCRIPT_NAME"] = root.removesuffix(self._prefix)
            environ["PATH_INFO"] = self._prefix + environ.get("PATH_INFO", "")
        return self._plane().app(environ, start_response)

    def _plane(self) -> Plane:
        serving = self._serving
        if serving is None:
            with self._lock:
                serving = self._serving = self._serving or _Serving(self._service)
        return serving.plane

    def _shut_down(self) -> None:
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.end()


class _Serving:
    """A prepared plane with one service. Its tasks start when no other process of the state directory runs them."""

    def __init__(self, service: str) -> None:
        config = _config(service)
        logs.set_up_logging(config.plane.log_level)
        # Each process of the server would need a port of its own for consoles.
        self.plane = build_plane(config, has_sockets=False)
        self.plane.prepare()
        self._ending = threading.Event()
        #: released at the latest when the process ends
        self._lock = (config.state / f"duties-{service}.lock").open("w", encoding="ascii")
        self._waiting = threading.Thread(target=self._take_tasks, name="duties", daemon=True)
        self._waiting.start()

    def end(self) -> None:
        self._ending.set()
        self._waiting.join()
        self.plane.stop()
        self._lock.close()

    def _take_tasks(self) -> None:
        # A server that forks after the import does so before the first attempt, so its tasks never start.
        while not self._ending.wait(TASKS_AFTER_S):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            log.info("this process now runs the tasks of this state directory")
            self.plane.start_tasks()
            return


def _config(service: str) -> Config:
    """The configuration that MOORAGE_CONFIG names, reduced to this service. Raises `StartError`."""
    path = os.environ.get(CONFIG_VARIABLE)
    if not path:
        raise StartError(f"{CONFIG_VARIABLE} is not set; set it to the configuration file of {service}")
    config = load_config(Path(path))
    services = {service}
    # Tokens are checked where the users are. The dashboard checks none; it asks identity, as a browser's client would.
    if service != "dashboard" and config.identity.mode in ("embedded", "http_basic"):
        services.add("identity")
    os.umask(0o077)
    config.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    return dataclasses.replace(config, plane=dataclasses.replace(config.plane, services=",".join(sorted(services))))
