"""Ending and deleting leases: what each act does to a lease, and why it may not. Pure."""

from collections.abc import Mapping

from moorage.dashboard.views.lease_view import LeaseDetails
from moorage.dashboard.views.selection import Act, SelectableKind

#: A lease that was to be cancelled before it starts, and has started since, keeps its servers (unless it starts between
#: the last look and the act).
_ACTS: Mapping[str, Act] = {
    "end": Act("end", "End", "ended", "Ends now. Its servers are deleted, and its resources become free.", keeps=True),
    "cancel": Act("delete", "Cancel", "cancelled", "Is cancelled before it starts. Its resources become free."),
    "delete": Act("delete", "Delete", "deleted", "Is deleted with its servers. Its resources become free."),
    "delete_ended": Act("delete", "Delete", "deleted", "Has ended. Is deleted from the list."),
}

#: {status: why a lease cannot be ended, or deleted}
_WHY_NOT: Mapping[str, str] = {
    "CREATING": "Cannot be ended: it has not started. Cancel it instead.",
    "PENDING": "Cannot be ended: it has not started. Cancel it instead.",
    "STARTING": "Cannot be ended while it starts. Try again in a moment.",
    "UPDATING": "Cannot be ended while it is changed. Try again in a moment.",
    "TERMINATING": "Is ending already.",
    "TERMINATED": "Has ended already.",
    "DELETING": "Is being deleted already.",
}


def _act_on(lease: LeaseDetails, choice: str) -> tuple[str, str]:
    if choice == "end":
        if lease.can_end:
            return "end", _ACTS["end"].effect
        return "", _WHY_NOT.get(lease.status, f"Cannot be ended in status {lease.status}. Delete it instead.")
    if lease.status == "DELETING":
        return "", _WHY_NOT["DELETING"]
    return lease.removal.kind, _ACTS[lease.removal.kind].effect


LEASES: SelectableKind[LeaseDetails] = SelectableKind(
    "lease", "leases", "reservation", _ACTS,
    {
        "end": ("End leases", "No selected lease can be ended"),
        "delete": ("Cancel or delete leases", "No selected lease can be deleted"),
    },
    _act_on, lambda lease: lease.status, "leases_selected.html",
)  # fmt: skip
