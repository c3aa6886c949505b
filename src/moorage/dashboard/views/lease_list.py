"""The list of leases: its groups, its columns, and the parameters of its address. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from moorage.dashboard.views.lease_view import LeaseDetails
from moorage.dashboard.views.tables import MAX_WANTED, TableColumn

#: Leases of a group that one request reads (the API's maximum), and those that the page shows.
READ = 1000
SHOWN = 200

#: The tabs of the page. The first one has two groups; the others have one, which is named like the tab.
TABS: Mapping[str, str] = {"": "Running and coming", "ended": "Ended", "all": "All"}


@dataclass(frozen=True, slots=True)
class LeaseGroup:
    """A table of the page. `order`: of the API; `first`: which of more than `READ` leases are read, in words."""

    words: str
    empty: str
    order: Mapping[str, str]
    first: str
    buttons: Sequence[tuple[str, str]]  #: [(key of `selected_leases.CHOICES`, label)]


GROUPS: Mapping[str, LeaseGroup] = {
    "running": LeaseGroup(
        "Running", "Nothing is reserved at the moment.", {"sort_key": "end_date"}, "that end first",
        (("end", "End now"), ("delete", "Delete")),
    ),
    "coming": LeaseGroup(
        "Coming", "No lease is planned.", {"sort_key": "start_date"}, "that start first", (("delete", "Cancel leases"),)
    ),
    "ended": LeaseGroup(
        "Ended", "No lease has ended yet. Leases that were deleted are not listed.",
        {"sort_key": "end_date", "sort_dir": "desc"}, "that ended last", (("delete", "Delete"),),
    ),
    "all": LeaseGroup(
        "All", "No leases yet.", {"sort_key": "start_date", "sort_dir": "desc"}, "that start last",
        (("end", "End now"), ("delete", "Cancel or delete")),
    ),
}  # fmt: skip

#: What the address of the list contains, and the forms and links that lead back to it.
_PARAMETERS = ("show", "all", "find", "sort", "marker")


def list_parameters(read: Callable[[str], str | None]) -> dict[str, str]:
    """{parameter: value} of those that are not empty. `read`: returns the value of a parameter."""
    return {name: text for name in _PARAMETERS if (text := (read(name) or "").strip()[:MAX_WANTED])}


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """`project`, `person`: their names as the viewer knows them."""

    lease: LeaseDetails
    project: str
    person: str


_PROJECT: TableColumn[LeaseRow] = TableColumn("project", "Project", lambda row: row.project)
_COLUMNS: Sequence[TableColumn[LeaseRow]] = (
    TableColumn("name", "Name", lambda row: row.lease.name),
    TableColumn("status", "Status", lambda row: row.lease.status + (" degraded" if row.lease.degraded else "")),
    _PROJECT,
    TableColumn("person", "Person", lambda row: row.person),
    TableColumn("start", "Start", lambda row: _minute(row.lease.start)),
    TableColumn("end", "End", lambda row: _minute(row.lease.end)),
    TableColumn("what", "What", lambda row: row.lease.what),
)


def list_columns(*, is_all: bool) -> Sequence[TableColumn[LeaseRow]]:
    """`is_all`: whether the leases are of all projects."""
    return [column for column in _COLUMNS if is_all or column is not _PROJECT]


def heading_count(found: int, read: int, *, has_more: bool, is_filtered: bool) -> str:
    """The number in a group's heading: ``12``, ``1,000+``, or with a filter ``3 of 12``."""
    total = f"{read:,}{'+' if has_more else ''}"
    return f"{found:,} of {total}" if is_filtered else total


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"
