"""[pure] The power states of a domain, the actions that change them, and the transitions that are possible."""

from enum import StrEnum

from moorage.core.errors import Conflict
from moorage.core.states import transition_table


class DomainPowerState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    SHUTOFF = "shutoff"
    SUSPENDED = "suspended"  #: its memory is on disk


class PowerAction(StrEnum):
    START = "start"
    STOP = "stop"
    REBOOT = "reboot"  #: asks the guest to shut down first
    REBOOT_HARD = "reboot-hard"  #: stops the guest at once; deletes its saved memory
    PAUSE = "pause"
    UNPAUSE = "unpause"
    SUSPEND = "suspend"
    RESUME = "resume"


#: Actions that boot the guest in any case, also if it runs already.
REBOOTS = frozenset({PowerAction.REBOOT, PowerAction.REBOOT_HARD})


#: The state after each action. If the domain is in that state already, the action does nothing, except `REBOOTS`.
STATE_AFTER = {
    PowerAction.START: DomainPowerState.RUNNING,
    PowerAction.STOP: DomainPowerState.SHUTOFF,
    PowerAction.REBOOT: DomainPowerState.RUNNING,
    PowerAction.REBOOT_HARD: DomainPowerState.RUNNING,
    PowerAction.PAUSE: DomainPowerState.PAUSED,
    PowerAction.UNPAUSE: DomainPowerState.RUNNING,
    PowerAction.SUSPEND: DomainPowerState.SUSPENDED,
    PowerAction.RESUME: DomainPowerState.RUNNING,
}

POWER = transition_table(
    "a domain",
    {
        DomainPowerState.RUNNING: [
            DomainPowerState.PAUSED,
            DomainPowerState.SUSPENDED,
            DomainPowerState.SHUTOFF,
            DomainPowerState.RUNNING,
        ],
        DomainPowerState.PAUSED: [DomainPowerState.RUNNING, DomainPowerState.SHUTOFF],
        DomainPowerState.SUSPENDED: [DomainPowerState.RUNNING, DomainPowerState.SHUTOFF],
        DomainPowerState.SHUTOFF: [DomainPowerState.RUNNING],
    },
)


def is_already_done(before: DomainPowerState, action: PowerAction) -> bool:
    return before is STATE_AFTER[action] and action not in REBOOTS


def why_impossible(before: DomainPowerState, action: PowerAction) -> str | None:
    """The reason why `action` is not possible in this state; None if it is possible."""
    try:
        POWER.check_transition(before, STATE_AFTER[action])
    except Conflict as conflict:
        return conflict.message
    return None
