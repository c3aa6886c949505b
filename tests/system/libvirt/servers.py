"""Servers with real guests: creates and operates them by the API, and waits for them."""

import re
import time
from collections.abc import Callable

from tests.system.planes import PlaneClients

#: Emulated, on cores that others use too.
BOOT_S = 180
#: Between two polls: frequent polls take CPU from the guest.
LOOK_S = 0.2


def console(clients: PlaneClients, server: str) -> str:
    action = {"os-getConsoleOutput": {}}
    return clients.compute.request("POST", f"/servers/{server}/action", json=action)["output"]


def wait_for_console(clients: PlaneClients, server: str, pattern: str) -> str:
    """The whole console, once it matches `pattern`."""
    return patiently(lambda: re.search(pattern, text := console(clients, server)) and text)


def wait_for(clients: PlaneClients, server: str, *wanted: str) -> dict:
    """The server, when it has such a status and no operation in progress."""

    def settled():
        now = clients.server(server)
        return now if now["status"] in wanted and not now["OS-EXT-STS:task_state"] else None

    return patiently(settled)


def patiently(probe: Callable[[], object], *, timeout_s: float = BOOT_S):
    """The first true answer."""
    deadline = time.monotonic() + timeout_s
    while not (answer := probe()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(LOOK_S)
    return answer


def act(clients: PlaneClients, server: str, action: str, status: str, **arguments: object) -> None:
    """Runs the action, and waits for the `status` that it leads to."""
    clients.compute.request("POST", f"/servers/{server}/action", json={action: arguments or None})
    wait_for(clients, server, status)


def delete(clients: PlaneClients, server: str) -> None:
    clients.compute.request("DELETE", f"/servers/{server}")
    clients.wait_until_gone(server)
