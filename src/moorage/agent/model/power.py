"""[pure] The power of a domain: its states, what changes them, and which change is possible when."""

from enum import StrEnum

from moorage.core.errors import Conflict
from moorage.core.states import table


class PowerState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    SHUTOFF = "shutoff"
    SUSPENDED = "suspended"  #: its memory is on disk


class PowerAction(StrEnum):
    START = "start"
    STOP = "stop"
    REBOOT = "reboot"  #: the guest is asked first
    REBOOT_HARD = "reboot-hard"  #: pulls the plug; saved memory is dropped
    PAUSE = "pause"
    UNPAUSE = "unpause"
    SUSPEND = "suspend"
    RESUME = "resume"


#: Actions after which the guest has booted, whatever it was before: never done already.
REBOOTS = frozenset({PowerAction.REBOOT, PowerAction.REBOOT_HARD})


#: Reached by each action; an action whose state is reached already is done.
REACHED = {
    PowerAction.START: PowerState.RUNNING,
    PowerAction.STOP: PowerState.SHUTOFF,
    PowerAction.REBOOT: PowerState.RUNNING,
    PowerAction.REBOOT_HARD: PowerState.RUNNING,
    PowerAction.PAUSE: PowerState.PAUSED,
    PowerAction.UNPAUSE: PowerState.RUNNING,
    PowerAction.SUSPEND: PowerState.SUSPENDED,
    PowerAction.RESUME: PowerState.RUNNING,
}

POWER = table(
    "a domain",
    {
        PowerState.RUNNING: [PowerState.PAUSED, PowerState.SUSPENDED, PowerState.SHUTOFF, PowerState.RUNNING],
        PowerState.PAUSED: [PowerState.RUNNING, PowerState.SHUTOFF],
        PowerState.SUSPENDED: [PowerState.RUNNING, PowerState.SHUTOFF],
        PowerState.SHUTOFF: [PowerState.RUNNING],
    },
)


def is_done(before: PowerState, action: PowerAction) -> bool:
    return before is REACHED[action] and action not in REBOOTS


def hindrance(before: PowerState, action: PowerAction) -> str | None:
    """Why `action` is not possible; None: it is."""
    try:
        POWER.check(before, REACHED[action])
    except Conflict as conflict:
        return conflict.message
    return None
