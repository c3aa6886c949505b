"""Generates docs/reference/states.md from the transition tables next to the models."""

from moorage.accelerator.model import binding
from moorage.accelerator.model import devices as accelerator
from moorage.agent import model as agent
from moorage.compute.model import lifecycle
from moorage.core.states import Transitions
from moorage.images import model as images
from moorage.jobs import model as jobs
from moorage.reservation.model import leases as reservation
from tools.reference.tables import code, heading, table

WORDS = """
A status changes only as these tables allow. The code checks them at each change and refuses any other change with
`moorage.state`. [Server operations](server-operations.md) lists the states that each operation needs and leaves.
"""

#: (title, table, remarks)
TABLES: list[tuple[str, Transitions, str]] = [
    ("Servers", lifecycle.SERVER_STATES, "The `vm_state` of a server, which operations and an administrator's `os-resetState` change."),
    ("Domains", agent.POWER, "The power state of a guest in the hypervisor."),
    ("Leases", reservation.LEASE_STATES, "A lease in `DELETING` is removed."),
    ("Reservations of a lease", reservation.RESERVATION_STATES, ""),
    ("Events of a lease", reservation.EVENT_STATES, "`DONE` and `ERROR` can change back when a lease's end moves: its `before_end` event is due again."),
    ("Accelerator requests", binding.TRANSITIONS, "A request in `Deleting` is removed."),
    ("Attach handles", accelerator.HANDLE_TRANSITIONS, "A card, or a function of a card, that a host can attach. A handle that had a tenant is cleaned before it is free."),
    ("Regions", accelerator.REGION_TRANSITIONS, "Regions of an FPGA. `unknown`: programming was interrupted, so the region is programmed again before it is used."),
    ("Jobs of a host", jobs.TRANSITIONS, "`claimed` to `claimed`: the lease of a claim ended, and another worker claimed the job with a new epoch."),
    ("Images", images.TRANSITIONS, "Images of the built-in image service."),
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
