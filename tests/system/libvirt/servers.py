"""Servers with real guests: creates and operates them by the API, and waits for them."""

import re
import time
from collections.abc import Callable

from tests.system.planes import PlaneClients

#: Time limit for an emulated guest on cores that other tests use, too.
BOOT_S = 180
#: Seconds between two polls: frequent polls take CPU from the guest.
LOOK_S = 0.2


def console(clients: PlaneClients, server: str) -> str:
    action = {"os-getConsoleOutput": {}}
    return clients.compute.request("POST", f"/servers/{server}/action", json=action)["output"]


def wait_for_console(clients: PlaneClients, server: str, pattern: str) -> str:
    """Waits until the console matches `pattern`; returns the whole console."""
    return patiently(lambda: re.search(pattern, text := console(clients, server)) and text)


def wait_for(clients: PlaneClients, server: str, *wanted: str) -> dict:
    """Waits until the server has one of these statuses and no operation in progress; returns the server."""

    def settled():
        now = clients.server(server)
        return now if now["status"] in wanted and not now["OS-EXT-STS:task_state"] else None

    return patiently(settled)


def patiently(probe: Callable[[], object], *, timeout_s: float = BOOT_S):
    """Calls `probe` until its result is true; returns the result."""
    deadline = time.monotonic() + timeout_s
    while not (answer := probe()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(LOOK_S)
    return answer


def act(clients: PlaneClients, server: str, action: str, status: str, **arguments: object) -> None:
    """Runs the action, and waits until the server has the resulting `status`."""
    clients.compute.request("POST", f"/servers/{server}/action", json={action: arguments or None})
    wait_for(clients, server, status)


def delete(clients: PlaneClients, server: str) -> None:
    clients.compute.request("DELETE", f"/servers/{server}")
    clients.wait_until_gone(server)
