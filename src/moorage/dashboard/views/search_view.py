"""What a search found, by kind: names that link to their pages. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from moorage.dashboard.views.host_use import host_use, lent_aggregates
from moorage.dashboard.views.lease_view import COLOURS
from moorage.dashboard.views.reservation_documents import parse_date

Document = Mapping[str, Any]


class KnownNames(Protocol):
    """The names that the viewer may know (`signing_in.Names`). `users`: {id: name}."""

    @property
    def users(self) -> Mapping[str, str]: ...
    def project(self, project_id: str, /) -> str: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """`path`: its page; empty if it has none. The others tell it from entries of the same name."""

    name: str
    path: str
    state: str = ""
    tone: str = ""  #: of the state's badge
    notes: tuple[str, ...] = ()
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True)
class Results:
    """`is_cut`: there are more than these."""

    entries: tuple[Entry, ...] = ()
    is_cut: bool = False


NOTHING = Results()


def of_trees(trees: Sequence[Document], matching: int, aggregates: Sequence[Document]) -> Results:
    """Hosts with their state on the map. `aggregates`: compute's."""
    lent = lent_aggregates(aggregates)
    found = [(tree, host_use(tree, lent)) for tree in trees]
    entries = [Entry(tree["name"], f"/map/{tree['uuid']}", use.words, f"state-{use}") for tree, use in found]
    return Results(tuple(entries), matching > len(entries))


def of_leases(leases: Sequence[Document], text: str, limit: int, names: KnownNames) -> Results:
    """Those whose names contain `text`, ignoring case."""
    entries = [
        Entry(
            lease["name"],
            f"/leases/{lease['id']}",
            lease["status"],
            COLOURS.get(lease["status"], ""),
            (f"project {names.project(lease['project_id'])}", *_known(names.users, lease["user_id"])),
            parse_date(lease["start_date"]),
            parse_date(lease["end_date"]),
        )
        for lease in leases
        if text.casefold() in lease["name"].casefold()
    ]
    return _cut(entries, limit)


_SERVER_TONES: Mapping[str, str] = {"ACTIVE": "good", "ERROR": "bad"}


def of_servers(servers: Sequence[Document], limit: int, names: KnownNames) -> Results:
    entries = [
        Entry(
            one["name"],
            f"/servers/{one['id']}",
            one["status"],
            _SERVER_TONES.get(one["status"], ""),
            (
                f"project {names.project(one['tenant_id'])}",
                *_known(names.users, one["user_id"]),
                *_host(one),
                one["id"],
            ),
        )
        for one in servers
    ]
    return _cut(entries, limit)


def _known(names: Mapping[str, str], some_id: str) -> tuple[str, ...]:
    return (f"by {names[some_id]}",) if some_id in names else ()


def _host(server: Document) -> tuple[str, ...]:
    """Where it is; only administrators are told."""
    host = server.get("OS-EXT-SRV-ATTR:host")
    return (f"on {host}",) if host else ()


def of_devices(devices: Sequence[Document]) -> Results:
    return Results(
        tuple(
            Entry(f"{one['type']} on {one['hostname']}", f"/devices/{one['uuid']}", notes=(one["uuid"],))
            for one in devices
        )
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
    return _cut([Entry(name, path_of(some_id, name), notes=(some_id,)) for some_id, name in found], limit)


def _cut(entries: Sequence[Entry], limit: int) -> Results:
    return Results(tuple(entries[:limit]), len(entries) > limit)
