"""Formats leases as an iCalendar feed. No I/O.

Source: RFC 5545: lines end with CR LF and have at most 75 octets (3.1), texts are escaped (3.3.11).
"""

from collections.abc import Iterable
from datetime import datetime

from moorage.reservation.model.leases import Lease, LeaseStatus

CONTENT_TYPE = "text/calendar; charset=utf-8"

_LONGEST = 75
_ESCAPED = str.maketrans({"\\": "\\\\", ";": "\\;", ",": "\\,", "\n": "\\n"})


def feed(leases: Iterable[Lease]) -> bytes:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Moorage//Reservations//EN", "X-WR-CALNAME:Leases"]
    for lease in leases:
        lines += _event(lease)
    return "".join(_folded(line) for line in [*lines, "END:VCALENDAR"]).encode()


def _event(lease: Lease) -> list[str]:
    kinds = ", ".join(each.resource_type for each in lease.reservations) or "nothing"
    return [
        "BEGIN:VEVENT",
        f"UID:{lease.id}",
        f"DTSTAMP:{_time(lease.updated_at or lease.created_at)}",
        f"DTSTART:{_time(lease.start_date)}",
        f"DTEND:{_time(lease.end_date)}",
        f"SUMMARY:{_text(lease.name)}",
        f"DESCRIPTION:{_text(f'{lease.status}: {kinds}')}",
        f"STATUS:{'CANCELLED' if lease.status is LeaseStatus.ERROR else 'CONFIRMED'}",
        "END:VEVENT",
    ]


def _time(moment: datetime) -> str:
    return f"{moment:%Y%m%dT%H%M%SZ}"


def _text(text: str) -> str:
    plain = "".join(
        each for each in text.replace("\r\n", "\n").replace("\r", "\n") if each == "\n" or each.isprintable()
    )
    return plain.translate(_ESCAPED)


def _folded(line: str) -> str:
    """Folds a line to 75 octets. Counts octets but breaks between characters, so that none is split."""
    folded, octets = [], 0
    for each in line:
        size = len(each.encode())
        if octets + size > _LONGEST:
            folded.append("\r\n ")
            octets = 1
        folded.append(each)
        octets += size
    return "".join(folded) + "\r\n"
