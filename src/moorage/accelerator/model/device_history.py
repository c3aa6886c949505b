"""The history of devices: a record for each change of who has one and what is in it, kept until the service has it.

A record is made in the step of the checkpoint that changes the state (`history_derivation`), and is in the same file: the two are
there together or not at all. It leaves the file when the central service has taken it. Pure: no I/O here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

#: Records that a host keeps while nobody takes them: every step writes them all.
MAX_PENDING_RECORDS = 1000
#: Characters of a text that comes from elsewhere, in columns of the service's table.
MAX_TEXT_CHARACTERS = 255
MAX_REASON_CHARACTERS = 2000


class DeviceEvent(StrEnum):
    PROGRAM = "program"  #: a region was to be loaded; without a digest: with the blank
    ATTACH = "attach"
    DETACH = "detach"  #: its instance has it no longer; it is dirty
    CLEAN = "clean"  #: it is free
    QUARANTINE = "quarantine"  #: it could not be cleaned
    RELEASE = "release"  #: an operator lets it be cleaned again
    GAP = "gap"  #: records were lost here: the service was away for too long


@dataclass(frozen=True, slots=True)
class Requester:
    """For whom; all empty where it was for nobody: a mending, or an operator on the host."""

    instance_uuid: str = ""
    project_id: str = ""
    user_id: str = ""


@dataclass(frozen=True, slots=True)
class DeviceTransition:
    """What a step did to one handle or region."""

    event: DeviceEvent
    deployable: str
    handle: str = ""  #: empty for a region
    who: Requester = Requester()
    image_id: str = ""  #: of the bitstream that is, or was to be, in the region
    digest: str = ""  #: sha512 of it
    done: bool = True  #: or it failed
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """On the wire and in the checkpoint a JSON object with the same names."""

    sequence: int  #: rises on a host; the time in microseconds, or one more than the last
    at: datetime
    what: DeviceTransition

    @property
    def device(self) -> str:
        """The card's PCI address, which a deployable's name begins with."""
        return self.what.deployable.partition("_")[0]


@dataclass(frozen=True, slots=True)
class Journal:
    """`pending` are those that the service has not taken yet, in their order."""

    last: int = 0
    pending: tuple[HistoryRecord, ...] = ()
    lost: int = 0  #: how many the gap at the head of `pending` stands for


def append_transitions(journal: Journal, happenings: Sequence[DeviceTransition], at: datetime) -> Journal:
    if not happenings:
        return journal
    # By the clock, so that a host whose checkpoint was removed does not number its records as it did before.
    first = max(journal.last + 1, int(at.timestamp() * 1_000_000))
    new = tuple(HistoryRecord(first + number, at, _truncated(what)) for number, what in enumerate(happenings))
    return _limit_pending(Journal(new[-1].sequence, (*journal.pending, *new), journal.lost))


def drop_records(journal: Journal, upto: int) -> Journal:
    """The service has those up to the sequence number `upto`."""
    left = tuple(record for record in journal.pending if record.sequence > upto)
    return Journal(journal.last, left, journal.lost if left[:1] and left[0].what.event is DeviceEvent.GAP else 0)


def _limit_pending(journal: Journal) -> Journal:
    records = [record for record in journal.pending if record.what.event is not DeviceEvent.GAP]
    excess = records[:-MAX_PENDING_RECORDS]
    if not excess:
        return journal
    lost = journal.lost + len(excess)
    reason = f"{lost} records up to here were lost: the host could not tell the accelerator service for too long"
    gap = replace(excess[-1], what=DeviceTransition(DeviceEvent.GAP, "", done=False, reason=reason))
    return Journal(journal.last, (gap, *records[-MAX_PENDING_RECORDS:]), lost)


def _truncated(what: DeviceTransition) -> DeviceTransition:
    who = Requester(
        what.who.instance_uuid, what.who.project_id[:MAX_TEXT_CHARACTERS], what.who.user_id[:MAX_TEXT_CHARACTERS]
    )
    return replace(
        what,
        who=who,
        image_id=what.image_id[:MAX_TEXT_CHARACTERS],
        digest=what.digest[:MAX_TEXT_CHARACTERS],
        reason=what.reason[:MAX_REASON_CHARACTERS],
    )
