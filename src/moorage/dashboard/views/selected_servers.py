"""Deleting, stopping, starting and rebooting servers: what each act does to a server, and why it may not. Pure.

Compute decides; this only keeps requests away that it would refuse. Source: `compute.model.lifecycle`, and Nova's table
of the states in which each action is allowed.
"""

from collections.abc import Mapping, Sequence

from moorage.dashboard.views.selection import Act, SelectableKind
from moorage.dashboard.views.servers_view import ServerRow

_ACTS: Mapping[str, Act] = {
    "delete": Act(
        "delete", "Delete", "being deleted", "Is deleted with its disk, at once or when the time to restore it is over."
    ),
    "stop": Act("stop", "Stop", "being stopped", "Is shut down. It keeps its host, disk and devices.", keeps=True),
    "start": Act("start", "Start", "being started", "Is started again.", keeps=True),
    "reboot": Act("reboot", "Reboot", "being rebooted", "Its operating system is asked to restart.", keeps=True),
    "reboot_hard": Act(
        "reboot", "Reboot", "being rebooted", "Is switched off and on again, because it is in ERROR.", keeps=True
    ),
}

#: {choice: {status: act}}. A server in ERROR can be stopped or rebooted if it has a host.
_BY_STATUS: Mapping[str, Mapping[str, str]] = {
    "stop": {"ACTIVE": "stop", "ERROR": "stop"},
    "start": {"SHUTOFF": "start"},
    "reboot": {"ACTIVE": "reboot", "ERROR": "reboot_hard"},
}
#: {choice: what a server has to be, as a refusal says it}
_NEEDS: Mapping[str, str] = {"stop": "ACTIVE", "start": "SHUTOFF", "reboot": "ACTIVE"}

#: {act: the body of the action request; None: ``DELETE``}
ACTION_BODIES: Mapping[str, Mapping[str, Mapping[str, str] | None] | None] = {
    "delete": None,
    "stop": {"os-stop": None},
    "start": {"os-start": None},
    "reboot": {"reboot": {"type": "SOFT"}},
    "reboot_hard": {"reboot": {"type": "HARD"}},
}


def _act_on(server: ServerRow, choice: str) -> tuple[str, str]:
    if reason := _why_untouchable(server):
        return "", reason
    if choice == "delete":
        return "delete", _ACTS["delete"].effect
    act = _BY_STATUS[choice].get(server.status, "")
    if not act:
        return "", f"Its status is {server.status}; it would have to be {_NEEDS[choice]}."
    if server.status == "ERROR" and not server.has_host:
        return "", "Found no host, so there is nothing to " + choice + ". Delete it instead."
    if server.task:
        return "", f"Is busy: {server.task}. Try again in a moment."
    return act, _ACTS[act].effect


def _why_untouchable(server: ServerRow) -> str:
    """Why nothing at all can be done with the server; empty if something can be."""
    if server.task in ("deleting", "soft-deleting"):
        return "Is being deleted already."
    if server.status == "SOFT_DELETED":
        return "Was deleted. It goes when the time to restore it is over."
    # Compute lets administrators act on a locked server, which is not what a lock is for.
    return f"{server.lock}. Unlock it first: openstack server unlock {server.id}" if server.lock else ""


SERVERS: SelectableKind[ServerRow] = SelectableKind(
    "server", "servers", "compute", _ACTS,
    {
        "delete": ("Delete servers", "No selected server can be deleted"),
        "stop": ("Stop servers", "No selected server can be stopped"),
        "start": ("Start servers", "No selected server can be started"),
        "reboot": ("Reboot servers", "No selected server can be rebooted"),
    },
    _act_on, lambda server: server.status, "servers_selected.html",
)  # fmt: skip


#: [(choice, label)] of the buttons of the list.
BUTTONS: Sequence[tuple[str, str]] = (
    ("start", "Start"), ("stop", "Stop"), ("reboot", "Reboot"), ("delete", "Delete"),
)  # fmt: skip


def choices_for(server: ServerRow) -> list[tuple[str, str]]:
    """[(choice, label)] of the buttons on the server's page."""
    return [(choice, label) for choice, label in BUTTONS if _act_on(server, choice)[0]]
