"""docs/reference/states.md from the transition tables that stand beside the models."""

from moorage.accelerator.model import binding
from moorage.accelerator.model import devices as accelerator
from moorage.agent.model import power
from moorage.compute.model import lifecycle
from moorage.core.states import Transitions
from moorage.images import model as images
from moorage.jobs import model as jobs
from moorage.reservation.model import leases as reservation
from tools.reference.tables import code, heading, table

WORDS = """
A status changes only as these tables allow, which the code asks at each change; anything else is refused with
`moorage.state`. What an operation on a server needs and leaves is in
[what can be done to a server](server-operations.md), action by action.
"""

#: (title, table, what to know about it)
TABLES: list[tuple[str, Transitions, str]] = [
    ("Servers", lifecycle.SERVER_STATES, "What operations, and an administrator's `os-resetState`, make of a server: its `vm_state`."),
    ("Domains", power.POWER, "What the hypervisor has: the power state of a guest."),
    ("Leases", reservation.LEASE_STATES, "`DELETING` is left by the lease being gone."),
    ("Reservations of a lease", reservation.RESERVATION_STATES, ""),
    ("Events of a lease", reservation.EVENT_STATES, "`DONE` and `ERROR` go back where a lease's end moves: its `before_end` is armed again."),
    ("Accelerator requests", binding.TRANSITIONS, "`Deleting` is left by the request being gone."),
    ("Attach handles", accelerator.HANDLE_TRANSITIONS, "What a host may attach: a function of a card, or a card. Nothing that a tenant may have written to is free before it is cleaned."),
    ("Regions", accelerator.REGION_TRANSITIONS, "Of an FPGA. `unknown`: programming was cut off, so it is programmed again before it is used."),
    ("Jobs of a host", jobs.TRANSITIONS, "`claimed` to `claimed`: the lease of a claim was over, and another worker took it with a new epoch."),
    ("Images", images.TRANSITIONS, "Of the image service that is built in."),
]  # fmt: skip


def page() -> str:
    return heading("States", WORDS) + "".join(section(*one) for one in TABLES)


def section(title: str, transitions: Transitions, words: str) -> str:
    states = dict.fromkeys(
        [*transitions.allowed, *(after for following in transitions.allowed.values() for after in following)]
    )
    order = list(type(next(iter(states))))
    rows = []
    for state in sorted(states, key=order.index):
        following = sorted(transitions.allowed.get(state, frozenset()), key=order.index)
        rows.append([code(state.value), ", ".join(code(after.value) for after in following) or "nothing: it is final"])
    return f"\n## {title}\n" + (f"\n{words}\n" if words else "") + table(["state", "may become"], rows)
