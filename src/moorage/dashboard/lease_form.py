"""The form of a reservation: what was typed becomes the body of a request, and stays typed. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from moorage.core.errors import Invalid

TYPES: Mapping[str, str] = {
    "virtual:instance": "Servers of a size",
    "flavor:instance": "Servers of a flavor",
    "physical:host": "Whole hosts",
    "resource:any": "Any resources",
}

#: {word of the form: (what it says, what is sent)}. Without a word the key is left out, which is the same as none.
AFFINITIES: Mapping[str, tuple[str, bool | None]] = {
    "none": ("None: wherever there is room", None),
    "affinity": ("Affinity: all on one host", True),
    "anti-affinity": ("Anti-affinity: each on another host", False),
}

#: What an empty form has.
DEFAULTS: Mapping[str, str] = {
    "resource_type": "virtual:instance", "amount": "1", "affinity": "", "vcpus": "2", "memory_mb": "4096", "disk_gb": "20",
    "min": "1", "max": "1", "resources": "VCPU=1\nMEMORY_MB=1024", "traits": "", "bitstream_id": "", "flavor_id": "",
    "resource_properties": "", "hypervisor_properties": "", "name": "", "start_date": "", "end_date": "",
}  # fmt: skip

_SHAPES = ("%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S")


@dataclass(frozen=True, slots=True)
class Wish:
    """A lease that somebody wants. Without a start: now."""

    name: str
    start: datetime | None
    end: datetime
    reservation: Mapping[str, Any]

    @property
    def body(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "start_date": "now" if self.start is None else api_date(self.start),
            "end_date": api_date(self.end),
            "reservations": [self.reservation],
        }

    def search(self, now: datetime, limit: int) -> dict[str, Any]:
        """The body of a search for offers: as long, not before its start."""
        length = self.end - (self.start or now)
        body: dict[str, Any] = {
            "duration_minutes": max(1, int(length / timedelta(minutes=1))),
            "reservations": [self.reservation],
            "limit": limit,
        }
        return body if self.start is None or self.start <= now else body | {"earliest_start": api_date(self.start)}


def wish(typed: Mapping[str, str], now: datetime) -> Wish:
    """Raises `Invalid` naming the field."""
    start = date_of(typed.get("start_date", ""), "Start")
    end = date_of(typed.get("end_date", ""), "End")
    if end is None:
        raise Invalid("End: say when the lease ends")
    if end <= (start or now):
        raise Invalid("End: it must be after the start")
    name = typed.get("name", "") or "lease"
    return Wish(name, start, end, reservation(typed))


def reservation(typed: Mapping[str, str]) -> dict[str, Any]:
    """As the API takes it. Raises `Invalid`."""
    kind = typed.get("resource_type", "")
    if kind not in TYPES:
        raise Invalid(f"What to reserve: choose one of {', '.join(TYPES.values())}")
    body: dict[str, Any] = {"resource_type": kind}
    if properties := typed.get("resource_properties", ""):
        body["resource_properties"] = properties
    elif kind in ("virtual:instance", "physical:host"):
        body["resource_properties"] = ""
    if kind == "physical:host":
        least = number(typed, "min", "At least")
        most = number(typed, "max", "At most") if typed.get("max") else least
        return body | {"min": least, "max": most, "hypervisor_properties": typed.get("hypervisor_properties", "")}
    body["amount"] = number(typed, "amount", "Amount")
    if word := typed.get("affinity", ""):
        if word not in AFFINITIES:
            raise Invalid("Affinity: choose none, affinity or anti-affinity, or leave it out")
        body["affinity"] = AFFINITIES[word][1]
    if kind == "virtual:instance":
        return body | {
            "vcpus": number(typed, "vcpus", "VCPUs"),
            "memory_mb": number(typed, "memory_mb", "Memory"),
            "disk_gb": number(typed, "disk_gb", "Disk"),
        }
    if kind == "flavor:instance":
        if not typed.get("flavor_id"):
            raise Invalid("Flavor: choose one")
        return body | {"flavor_id": typed["flavor_id"]}
    return body | _any(typed)


def _any(typed: Mapping[str, str]) -> dict[str, Any]:
    resources = {
        name: _whole(text, f"Resources, {name}") for name, text in _pairs(typed.get("resources", ""), "Resources")
    }
    if not resources:
        raise Invalid("Resources: name at least one class, as VCPU=2")
    body: dict[str, Any] = {"resources": resources}
    if traits := dict(_pairs(typed.get("traits", ""), "Traits")):
        body["traits"] = traits
    if image := typed.get("bitstream_id", ""):
        body["bitstream_id"] = image
    if properties := typed.get("hypervisor_properties", ""):
        body["hypervisor_properties"] = properties
    return body


def _pairs(text: str, field: str) -> list[tuple[str, str]]:
    pairs = []
    for line in filter(None, (line.strip() for line in text.replace(",", "\n").splitlines())):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not (name and equals and value):
            raise Invalid(f"{field}: {line!r} is not NAME=VALUE; write one per line")
        pairs.append((name, value))
    return pairs


def number(typed: Mapping[str, str], name: str, field: str) -> int:
    return _whole(typed.get(name, ""), field)


def _whole(text: str, field: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Invalid(f"{field}: {text or 'nothing'} is not a whole number")
    return int(text)


def date_of(text: str, field: str) -> datetime | None:
    """What a browser's date field sends, or ``YYYY-MM-DD HH:MM``; None where it is empty or now."""
    text = text.strip()
    if text in ("", "now"):
        return None
    for shape in _SHAPES:
        try:
            return datetime.strptime(text, shape).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise Invalid(f"{field}: {text} is not a time; write 2026-12-01 08:00")


def api_date(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"


def field_date(moment: datetime) -> str:
    """For ``<input type=datetime-local>``."""
    return f"{moment:%Y-%m-%dT%H:%M}"
