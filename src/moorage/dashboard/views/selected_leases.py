"""Ending and deleting several leases: what each act does to a lease, and the words for it. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moorage.dashboard.views.lease_view import LeaseDetails

#: Maximum number of leases in one form. The service takes them one after another.
MAX_SELECTED = 50


@dataclass(frozen=True, slots=True)
class Act:
    """`button`, `done`: words for a button and a result. `effect`: what happens to the lease."""

    button: str
    done: str
    effect: str


#: {name of the form field: act}. A confirmed form says what each lease was confirmed for: one that was to be cancelled
#: before it starts, and has started since, keeps its servers (unless it starts between the last look and the act).
ACTS: Mapping[str, Act] = {
    "end": Act("End", "ended", "Ends now. Its servers are deleted, and its resources become free."),
    "cancel": Act("Cancel", "cancelled", "Is cancelled before it starts. Its resources become free."),
    "delete": Act("Delete", "deleted", "Is deleted with its servers. Its resources become free."),
    "delete_ended": Act("Delete", "deleted", "Has ended. Is deleted from the list."),
}

#: The buttons of the list: {value of `do`: (title of the page, answer if no selected lease allows it)}
CHOICES: Mapping[str, tuple[str, str]] = {
    "end": ("End leases", "No selected lease can be ended"),
    "delete": ("Cancel or delete leases", "No selected lease can be deleted"),
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


def act_on(lease: LeaseDetails, choice: str) -> tuple[str, str]:
    """(key of `ACTS`, what happens), or ("", why nothing happens). `choice`: a key of `CHOICES`."""
    if choice == "end":
        if lease.can_end:
            return "end", ACTS["end"].effect
        return "", _WHY_NOT.get(lease.status, f"Cannot be ended in status {lease.status}. Delete it instead.")
    if lease.status == "DELETING":
        return "", _WHY_NOT["DELETING"]
    return lease.removal.kind, ACTS[lease.removal.kind].effect


def choice_of(act: str) -> str:
    """The key of `CHOICES` that leads to this key of `ACTS`."""
    return "end" if act == "end" else "delete"


def why_not_selected(number: int) -> str:
    """Why a form with this number of leases is refused; empty if it is not."""
    if not number:
        return "No lease is selected. Go back to the list and select the leases first."
    if number > MAX_SELECTED:
        return f"{number:,} leases are selected. At most {MAX_SELECTED} can be ended or deleted at once; select fewer."
    return ""


def button_text(acts: Iterable[str]) -> str:
    """``End 3 leases``, ``Cancel 2 and delete 1 lease``. `acts`: a key of `ACTS` for each lease."""
    counts = sorted(Counter(ACTS[act].button for act in acts).items())
    verbs = " and ".join(f"{verb} {number}" for verb, number in counts).capitalize()
    return f"{verbs} {_leases(counts[-1][1])}"


def done_text(acts: Iterable[str], refused: int) -> str:
    """``3 leases ended``, ``1 lease cancelled, 2 deleted, 1 refused``"""
    counts = sorted(Counter(ACTS[act].done for act in acts).items())
    if not counts:
        return "No lease was changed"
    (done, number), *others = counts
    words = [f"{number} {_leases(number)} {done}", *(f"{number} {done}" for done, number in others)]
    return ", ".join([*words, f"{refused} refused"] if refused else words)


def _leases(number: int) -> str:
    return "lease" if number == 1 else "leases"
