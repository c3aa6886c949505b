"""The pages that the head of each page leads to, in their order."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    path: str  #: below ``/ui``
    label: str
    needs: str  #: the service whose page it is; left out where this cloud has none
    for_admins: bool = False


ENTRIES: tuple[NavigationEntry, ...] = (
    NavigationEntry("/calendar", "Calendar", "reservation"),
    NavigationEntry("/leases", "Leases", "reservation"),
    NavigationEntry("/map", "Map", needs="placement", for_admins=True),
    NavigationEntry("/servers", "Servers and accelerators", needs="compute"),
    NavigationEntry("/explain", "Explain", needs="compute"),
    NavigationEntry("/provider-config", "Provider configuration", needs="compute", for_admins=True),
)
