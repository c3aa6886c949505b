"""What a search found, by kind: names that link to their pages. Pure."""

from collections.abc import Callable, Mapping, Sequence
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
    return _cut(entries, limit)


def _minute(when: str) -> str:
    return f"{when[:16].replace('T', ' ')} UTC"


def of_servers(servers: Sequence[Document], limit: int) -> Results:
    entries = [Entry(each["name"], f"/servers/{each['id']}", f"{each['status']}, {each['id']}") for each in servers]
    return _cut(entries, limit)


def of_devices(devices: Sequence[Document]) -> Results:
    return Results(
        tuple(Entry(f"{one['type']} on {one['hostname']}", f"/devices/{one['uuid']}", one["uuid"]) for one in devices)
    )


def of_names(names: Mapping[str, str], text: str, limit: int, path_of: Callable[[str, str], str]) -> Results:
    """People or projects whose name contains `text`, or whose ID is `text`, ignoring case.

    `names`: {id: name}. `path_of`: the page of an id and a name; empty if it has none.
    """
    word = text.casefold()
    found = [
        (some_id, name) for some_id, name in names.items() if word in name.casefold() or word == some_id.casefold()
    ]
    found.sort(key=lambda one: one[1].casefold())
    return _cut([Entry(name, path_of(some_id, name), some_id) for some_id, name in found], limit)


def _cut(entries: Sequence[Entry], limit: int) -> Results:
    return Results(tuple(entries[:limit]), len(entries) > limit)
