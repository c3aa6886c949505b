"""The list of servers: its columns and the parameters of its address. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from moorage.dashboard.views.servers_view import ServerRow
from moorage.dashboard.views.tables import MAX_WANTED, TableColumn

#: Servers that one request reads (the API's maximum), and those that the page shows.
READ = 1000
SHOWN = 200

#: What the address of the list contains, and the forms and links that lead back to it.
_PARAMETERS = ("all", "find", "sort", "marker")


def list_parameters(read: Callable[[str], str | None]) -> dict[str, str]:
    """{parameter: value} of those that are not empty. `read`: returns the value of a parameter."""
    return {name: text for name in _PARAMETERS if (text := (read(name) or "").strip()[:MAX_WANTED])}


@dataclass(frozen=True, slots=True)
class ListedServer:
    """`lease`: (id, name) of the lease on which it runs, if it is known. `project`, `person`: their names as the viewer
    knows them.
    """

    server: ServerRow
    lease: tuple[str, str] | None
    project: str
    person: str


def _status_text(row: ListedServer) -> str:
    return " ".join(filter(None, (row.server.status, row.server.task, row.server.fault)))


def _flavor_text(row: ListedServer) -> str:
    lease = f"of lease {row.lease[1]}" if row.lease else "of a lease" if row.server.reservation_id else ""
    return f"{row.server.flavor or row.server.size} {lease}".strip()


_HOST: TableColumn[ListedServer] = TableColumn("host", "Host", lambda row: row.server.host)
_OF_ALL: Sequence[TableColumn[ListedServer]] = (
    TableColumn("project", "Project", lambda row: row.project),
    TableColumn("person", "Person", lambda row: row.person),
)


def list_columns(*, is_all: bool, is_admin: bool) -> Sequence[TableColumn[ListedServer]]:
    """`is_all`: whether the servers are of all projects. Only administrators see hosts."""
    return (
        TableColumn("name", "Name", lambda row: row.server.name),
        TableColumn("status", "Status", _status_text),
        TableColumn("flavor", "Flavor", _flavor_text),
        *((_HOST,) if is_admin else ()),
        *(_OF_ALL if is_all else ()),
        TableColumn("created", "Created", lambda row: row.server.created),
    )
