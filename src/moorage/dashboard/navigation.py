"""The pages that the head of each page leads to, in their order."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    path: str  #: below ``/ui``
    label: str
    needs: str  #: the service whose page it is; left out where this cloud has none
    for_admins: bool = False


ENTRIES: tuple[Entry, ...] = (
    Entry("/calendar", "Calendar", "reservation"),
    Entry("/leases", "Leases", "reservation"),
    Entry("/map", "Map", needs="placement", for_admins=True),
    Entry("/servers", "Servers and accelerators", needs="compute"),
    Entry("/explain", "Explain", needs="compute"),
    Entry("/provider-config", "Provider configuration", needs="compute", for_admins=True),
)
