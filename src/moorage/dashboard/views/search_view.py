"""What a search found, by kind: names that link to their pages. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

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


def of_projects(names: Mapping[str, str], text: str, limit: int, *, have_pages: bool) -> Results:
    """Projects whose name contains `text`, or whose ID is `text`, ignoring case. `names`: {id: name}."""
    found = _named(names, text)
    paths = [f"/people/projects?{urlencode({'find': name})}" if have_pages else "" for _, name in found]
    return _cut([Entry(name, path, some_id) for (some_id, name), path in zip(found, paths, strict=True)], limit)


def of_people(names: Mapping[str, str], text: str, limit: int, *, have_pages: bool) -> Results:
    """As `of_projects`, for users."""
    found = _named(names, text)
    paths = [f"/people/users/{quote(some_id, safe='')}" if have_pages else "" for some_id, _ in found]
    return _cut([Entry(name, path, some_id) for (some_id, name), path in zip(found, paths, strict=True)], limit)


def _named(names: Mapping[str, str], text: str) -> list[tuple[str, str]]:
    """[(id, name)] in the order of names."""
    word = text.casefold()
    found = [
        (some_id, name) for some_id, name in names.items() if word in name.casefold() or word == some_id.casefold()
    ]
    return sorted(found, key=lambda one: one[1].casefold())


def _cut(entries: Sequence[Entry], limit: int) -> Results:
    return Results(tuple(entries[:limit]), len(entries) > limit)
