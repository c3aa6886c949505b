"""Outages of the compute service, in which hosts could not report. Only the time outside them counts as silence."""

from dataclasses import dataclass
from datetime import datetime, timedelta

#: Without a write by any process for longer, no heartbeat could be recorded. An outage is at least this long.
LONGEST_PAUSE = timedelta(seconds=5)

#: Outages that are remembered.
_MOST = 32


@dataclass(frozen=True, slots=True)
class OutageRecord:
    """`written_at`: the last write of any process; None: unknown. `past`: (begin, end) of outages, the oldest first."""

    written_at: datetime | None = None
    past: tuple[tuple[datetime, datetime], ...] = ()

    def after_write(self, now: datetime) -> "OutageRecord":
        past = [one for one in self.past if one[1] <= now]  # the others are from before the clock was set back
        if self.written_at is not None and now - self.written_at > LONGEST_PAUSE:
            past.append((self.written_at, now))
        return OutageRecord(now, tuple(past[-_MOST:]))

    def heard_since(self, now: datetime, silence: timedelta) -> datetime:
        """A host whose last heartbeat is older has been silent for longer than `silence`."""
        since = now - silence
        for began, ended in reversed(self.after_write(now).past):  # one that goes on ends now at the earliest
            if ended > since:
                since -= ended - began
        return since


class Outages:
    """The record as this process read it last. Without the task that reads it (`moorage.compute.agents.outage_task`)
    there are no outages.
    """

    def __init__(self) -> None:
        self.record = OutageRecord()

    def heard_since(self, now: datetime, silence: timedelta) -> datetime:
        """See `OutageRecord`."""
        return self.record.heard_since(now, silence)
