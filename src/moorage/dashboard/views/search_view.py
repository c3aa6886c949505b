"""What a search found, by kind: names that link to their pages. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """`path`: its page; empty if it has none. `note`: what tells it from others of the same name."""

    name: str
    path: str
    note: str


@dataclass(frozen=True, slots=True)
class Results:
    """`is_cut`: there are more than these."""

    entries: tuple[Entry, ...] = ()
    is_cut: bool = False


NOTHING = Results()


def of_trees(trees: Sequence[Document], matching: int) -> Results:
    entries = [Entry(tree["name"], f"/map/{tree['uuid']}", tree["uuid"]) for tree in trees]
    return Results(tuple(entries), matching > len(entries))


def of_leases(leases: Sequence[Document], text: str, limit: int) -> Results:
    """Those whose names contain `text`, ignoring case."""
    entries = [
        Entry(lease["name"], f"/leases/{lease['id']}", f"{lease['status']}, from {_minute(lease['start_date'])}")
        for lease in leases
        if text.casefold() in lease["name"].casefold()
    ]
    return Results(tuple(entries[:limit]), len(entries) > limit)


def _minute(when: str) -> str:
    return f"{when[:16].replace('T', ' ')} UTC"


def of_servers(servers: Sequence[Document], limit: int) -> Results:
    entries = [Entry(each["name"], f"/servers/{each['id']}", f"{each['status']}, {each['id']}") for each in servers]
    return Results(tuple(entries[:limit]), len(entries) > limit)


def of_devices(devices: Sequence[Document]) -> Results:
    return Results(
        tuple(Entry(f"{one['type']} on {one['hostname']}", f"/devices/{one['uuid']}", one["uuid"]) for one in devices)
    )


def of_names(names: Mapping[str, str], text: str, limit: int) -> Results:
    """People or projects whose name contains `text`, or whose ID is `text`, ignoring case."""
    word = text.casefold()
    found = [
        (name, some_id) for some_id, name in names.items() if word in name.casefold() or word == some_id.casefold()
    ]
    entries = [Entry(name, "", some_id) for name, some_id in found]
    entries.sort(key=lambda entry: entry.name.casefold())
    return Results(tuple(entries[:limit]), len(entries) > limit)
