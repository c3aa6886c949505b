"""Work that nobody does: for a host that is not there, or that does not say that it lives. Pure.

No API shows jobs; what waits for them does. Jobs themselves are counted by age in the metrics.
"""

from collections.abc import Iterator
from datetime import timedelta

from moorage.audit.model import AuditedAccelerators, AuditSnapshot, Compute, Finding, FindingKind

#: What takes no longer than this where somebody does it, and where its host is away may still go on by itself.
LONG = timedelta(hours=1)


def stuck_work(picture: AuditSnapshot, grace: timedelta) -> Iterator[Finding]:
    if picture.compute is None:
        return
    patience = max(grace, LONG)
    yield from _servers(picture, picture.compute, patience)
    if picture.accelerators is not None:
        yield from _requests(picture, picture.accelerators, picture.compute, patience)


def _servers(picture: AuditSnapshot, compute: Compute, patience: timedelta) -> Iterator[Finding]:
    for uuid, busy in sorted(compute.busy.items()):
        away = _away(compute, busy.node)
        if picture.now - busy.since < patience or away is None:
            continue
        yield Finding(
            FindingKind.STUCK_SERVER,
            uuid,
            busy.node or "",
            f"it is {busy.task} since {busy.since:%Y-%m-%d %H:%M} UTC or longer, and {away}",
            "nothing: start the compute service there; or delete the server, or force the service down and evacuate it"
            if busy.node
            else "nothing: see that a compute process runs and does its jobs; or delete the server",
        )


def _requests(
    picture: AuditSnapshot, accelerators: AuditedAccelerators, compute: Compute, patience: timedelta
) -> Iterator[Finding]:
    for one in sorted(accelerators.requests, key=lambda one: one.uuid):
        if not one.is_waiting or picture.now - one.changed_at < patience:
            continue
        away = _away(compute, one.host) or "it does not say whether it is"
        yield Finding(
            FindingKind.STUCK_REQUEST,
            one.uuid,
            one.host,
            f"it is to be bound since {one.changed_at:%Y-%m-%d %H:%M} UTC, and {away}",
            "nothing: start the host's agent; or delete its server",
        )


def _away(compute: Compute, node: str | None) -> str | None:
    """Why nobody there does anything; None: somebody does."""
    if node is None:
        return "it is on no host"
    if node not in compute.nodes:
        return f"compute knows no host {node}"
    return f"{node} is down" if node in compute.down else None
