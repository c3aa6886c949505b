"""What the scheduler knows of a host, and what is wanted of one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.scheduler.server_groups import ServerGroupView


@dataclass(frozen=True)
class HostState:
    """A compute host as compute itself knows it."""

    name: str
    root_uuid: str  #: of its provider tree
    zone: str  #: availability zone
    is_up: bool  #: its service reported lately and nobody forced it down
    is_enabled: bool
    hypervisor_type: str = ""
    architecture: str | None = None  #: of its processors, where it says
    metadata: Mapping[str, frozenset[str]] = field(default_factory=dict)  #: {key: its values in the host's aggregates}


@dataclass(frozen=True)
class ServerRequirements:
    """What is asked of the host itself, beyond what Placement looks at."""

    server_id: str
    zone: str | None = None
    host: str | None = None
    not_hosts: Mapping[str, str] = field(default_factory=dict)  #: {host: why not}
    beside: frozenset[str] | None = None  #: hosts of the servers that it is to be with: one of these
    group: ServerGroupView | None = None
    architecture: str | None = None  #: of the image
    hypervisor_type: str | None = None  #: that the image is made for
    functions: frozenset[str] = frozenset()  #: of accelerators, as `weighers.wanted_functions` finds them
    #: For filters of other packages; ours go by what was made of them above.
    project_id: str = ""
    hints: Mapping[str, object] = field(default_factory=dict)
    extra_specs: Mapping[str, str] = field(default_factory=dict)
