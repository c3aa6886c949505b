"""Servers whose guests are real, by the API: told what to do, waited for."""

import re

from tests.system.planes import PlaneClients, until

#: Emulated, on cores that others use too.
BOOT_S = 180


def console(clients: PlaneClients, server: str) -> str:
    action = {"os-getConsoleOutput": {}}
    return clients.compute.request("POST", f"/servers/{server}/action", json=action)["output"]


def wait_for_console(clients: PlaneClients, server: str, pattern: str) -> str:
    """The whole console, once `pattern` is in it."""
    return until(lambda: re.search(pattern, text := console(clients, server)) and text, timeout_s=BOOT_S)


def wait_for(clients: PlaneClients, server: str, *wanted: str) -> dict:
    """The server, when it has such a status and nothing is done to it."""

    def settled():
        now = clients.server(server)
        return now if now["status"] in wanted and not now["OS-EXT-STS:task_state"] else None

    return until(settled, timeout_s=BOOT_S)


def act(clients: PlaneClients, server: str, action: str, status: str, **arguments: object) -> None:
    """Until it has the `status` that this leads to."""
    clients.compute.request("POST", f"/servers/{server}/action", json={action: arguments or None})
    wait_for(clients, server, status)


def delete(clients: PlaneClients, server: str) -> None:
    clients.compute.request("DELETE", f"/servers/{server}")
    clients.wait_until_gone(server)
