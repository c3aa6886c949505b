"""The device history on a host: one record per change of a handle's holder or a region's content.

A record is created in the checkpoint step that changes the state (`history_derivation`) and is stored in the same file,
so both are written together or not at all. It is removed from the file when the central service has stored it. Pure: no
I/O here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

#: Records that a host keeps while the service is unavailable. Every checkpoint write contains all of them.
MAX_PENDING_RECORDS = 1000
#: Maximum characters of texts from other sources, as the columns of the service's table allow.
MAX_TEXT_CHARACTERS = 255
MAX_REASON_CHARACTERS = 2000


class DeviceEvent(StrEnum):
    PROGRAM = "program"  #: a region was programmed, or programming failed; no digest: the blank
    ATTACH = "attach"
    DETACH = "detach"  #: the instance released it; it is dirty
    CLEAN = "clean"  #: it was cleaned and is free; the reason has the proof
    QUARANTINE = "quarantine"  #: it could not be cleaned
    RELEASE = "release"  #: an operator ends the quarantine, so that it is cleaned again
    GAP = "gap"  #: records were dropped here, because the service was unavailable for too long


@dataclass(frozen=True, slots=True)
class Requester:
    """The instance, project and user that caused a change. All empty: a repair, or a command on the host."""

    instance_uuid: str = ""
    project_id: str = ""
    user_id: str = ""


@dataclass(frozen=True, slots=True)
class DeviceTransition:
    """A change to one handle or region in one step."""

    event: DeviceEvent
    deployable: str
    handle: str = ""  #: empty for a region
    who: Requester = Requester()
    image_id: str = ""  #: of the bitstream in the region, or to be loaded into it
    digest: str = ""  #: sha512 of it
    done: bool = True  #: False: it failed
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """On the wire and in the checkpoint a JSON object with the same names."""

    sequence: int  #: increases on a host; the time in microseconds, or the last number plus 1
    at: datetime
    what: DeviceTransition

    @property
    def device(self) -> str:
        """The card's PCI address; a deployable's name begins with it."""
        return self.what.deployable.partition("_")[0]


@dataclass(frozen=True, slots=True)
class Journal:
    """`pending`: the records that the service does not have yet, in order."""

    last: int = 0
    pending: tuple[HistoryRecord, ...] = ()
    lost: int = 0  #: number of dropped records that the gap at the head of `pending` stands for


def append_transitions(journal: Journal, transitions: Sequence[DeviceTransition], at: datetime) -> Journal:
    if not transitions:
        return journal
    # From the clock, so that a host whose checkpoint was removed does not reuse sequence numbers.
    first = max(journal.last + 1, int(at.timestamp() * 1_000_000))
    new = tuple(HistoryRecord(first + number, at, _truncated(what)) for number, what in enumerate(transitions))
    return _limit_pending(Journal(new[-1].sequence, (*journal.pending, *new), journal.lost))


def drop_records(journal: Journal, upto: int) -> Journal:
    """Drop the records up to sequence number `upto`, which the service now has."""
    left = tuple(record for record in journal.pending if record.sequence > upto)
    return Journal(journal.last, left, journal.lost if left[:1] and left[0].what.event is DeviceEvent.GAP else 0)


def _limit_pending(journal: Journal) -> Journal:
    records = [record for record in journal.pending if record.what.event is not DeviceEvent.GAP]
    excess = records[:-MAX_PENDING_RECORDS]
    if not excess:
        return journal
    lost = journal.lost + len(excess)
    reason = f"{lost} records up to here were dropped: the host could not reach the accelerator service for too long"
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
