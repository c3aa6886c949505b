"""Default places of a plane's files. The commands, the agent and `os_acc` use the same.

Not here: files within a state directory (`moorage.config`, `moorage.wiring`).
"""

import os
from pathlib import Path

#: Name of the accelerator agent's socket for `os_acc`, in the agent's state directory.
OS_ACC_SOCKET = "os-acc.sock"

#: State directories of the units in ``packaging/systemd``; that of a host's agent first.
_OF_UNITS = (Path("/var/lib/moorage-agent"), Path("/var/lib/moorage"))


def default_state_directory() -> Path:
    """Of a plane that this user starts with `moorage up`."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "moorage"


def default_os_acc_sockets() -> list[Path]:
    """The sockets of agents with default settings; the first that exists counts."""
    return [directory / OS_ACC_SOCKET for directory in (default_state_directory(), *_OF_UNITS)]
