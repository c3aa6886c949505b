"""The lease form: converts the fields that a user typed into request bodies for the Reservation API. Pure."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from moorage.core.errors import Invalid
from moorage.core.json import Json, JsonObject
from moorage.dashboard.views.reservation_documents import ActionDocument, parse_date

TYPES: Mapping[str, str] = {
    "virtual:instance": "Servers by size",
    "flavor:instance": "Servers by flavor",
    "physical:host": "Whole hosts",
    "resource:any": "Custom resources",
}

#: {value of the form field: (label, value in the API)}. With no value, the key is omitted, which means none.
AFFINITIES: Mapping[str, tuple[str, bool | None]] = {
    "none": ("None: any host", None),
    "affinity": ("Affinity: all servers on one host", True),
    "anti-affinity": ("Anti-affinity: each server on its own host", False),
}

#: The fields of an empty form.
DEFAULTS: Mapping[str, str] = {
    "resource_type": "virtual:instance", "amount": "1", "affinity": "", "vcpus": "2", "memory_mb": "4096", "disk_gb":
    "20", "min": "1", "max": "1", "resources": "VCPU=1\nMEMORY_MB=1024", "traits": "", "flavor_id": "", "bitstream_id":
    "", "function_id": "", "function_name": "", "resource_properties": "", "hypervisor_properties": "", "name": "",
    "start_date": "", "end_date": "", "times": "1", "every_days": "7", "before_end_date": "", "snapshot": "", "emails":
    "", "webhooks": "",
}  # fmt: skip

#: ``vcpus >= 16``
_COMPARISON = re.compile(r"(\w+)\s*(==|!=|<=|>=|=|<|>)\s*(\S(?:.*\S)?)")
_SHAPES = ("%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S")


@dataclass(frozen=True, slots=True)
class LeaseForm:
    """A lease as entered. `start` None means now. With `times` above 1, it is a series."""

    name: str
    start: datetime | None
    end: datetime
    reservation: JsonObject
    before_end: Mapping[str, Json]  #: the keys for the request body
    times: int
    every_days: int

    @property
    def body(self) -> dict[str, Json]:
        """The request body for one lease, or for the first of a series."""
        return {
            "name": self.name,
            "start_date": "now" if self.start is None else api_date(self.start),
            "end_date": api_date(self.end),
            "reservations": [self.reservation],
            **self.before_end,
        }

    @property
    def series_body(self) -> dict[str, Json]:
        return {**self.body, "count": self.times, "every_days": self.every_days}

    def search(self, now: datetime, limit: int) -> dict[str, Json]:
        """The request body of a search for free times: same duration, starting no earlier than `start`."""
        length = self.end - (self.start or now)
        body: dict[str, Json] = {
            "duration_minutes": max(1, int(length / timedelta(minutes=1))),
            "reservations": [self.reservation],
            "limit": limit,
        }
        return body if self.start is None or self.start <= now else body | {"earliest_start": api_date(self.start)}

    def hold_body(self, now: datetime) -> dict[str, Json]:
        """The request body of a hold at exactly this start. A start of "now" may slip by one minute."""
        body = self.search(now, 1)
        del body["limit"]
        return body | {"latest_start": body.get("earliest_start", api_date(now + timedelta(minutes=1)))}


def parse_lease(typed: Mapping[str, str], now: datetime) -> LeaseForm:
    """The fields, checked and converted. Raises `Invalid`, naming the field."""
    start, end = parse_dates(typed, now)
    name = typed.get("name", "") or "lease"
    times, every_days = (
        parse_number(typed, "times", "Number of leases"),
        parse_number(typed, "every_days", "Days between starts"),
    )
    if not times:
        raise Invalid("Number of leases: enter at least 1", field="times")
    return LeaseForm(name, start, end, reservation_body(typed), before_end(typed), times, every_days)


def parse_dates(typed: Mapping[str, str], now: datetime) -> tuple[datetime | None, datetime]:
    """(start, end). Raises `Invalid`."""
    start = date_of(typed.get("start_date", ""), "Start", "start_date")
    end = date_of(typed.get("end_date", ""), "End", "end_date")
    if end is None:
        raise Invalid("End: enter the end of the lease", field="end_date")
    if end <= (start or now):
        raise Invalid("End: must be after the start", field="end_date")
    return start, end


def next_hour(now: datetime) -> datetime:
    """The next full hour."""
    return now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


def proposed_end(start: str, now: datetime, usual: timedelta) -> datetime:
    """The end that a form proposes: the `usual` length after `start`, the text of the field.

    If that is empty, no date or in the past, after the next full hour.
    """
    try:
        begins = date_of(start, "Start")
        return begins + usual if begins and begins >= now else next_hour(now) + usual
    except (Invalid, OverflowError):
        return next_hour(now) + usual


def before_end(typed: Mapping[str, str]) -> dict[str, Json]:
    """``before_end_date`` and ``before_end_actions``; empty fields are omitted. Raises `Invalid`."""
    body: dict[str, Json] = {}
    moment = date_of(typed.get("before_end_date", ""), "Time of the actions before the end", "before_end_date")
    if moment is not None:
        body["before_end_date"] = api_date(moment)
    if wanted := parse_actions(typed):
        body["before_end_actions"] = wanted
    return body


def parse_actions(typed: Mapping[str, str]) -> list[dict[str, str]]:
    """The actions in the API's format."""
    wanted = [{"action": "snapshot"}] if typed.get("snapshot") else []
    wanted += [{"action": "email", "to": address} for address in typed.get("emails", "").split()]
    wanted += [{"action": "webhook", "url": url} for url in typed.get("webhooks", "").split()]
    return wanted


def typed_actions(wanted: Iterable[ActionDocument]) -> dict[str, str]:
    """{form field: text} for the actions of an existing lease."""
    found = list(wanted)
    return {
        "snapshot": "1" if any(each["action"] == "snapshot" for each in found) else "",
        "emails": "\n".join(each["to"] for each in found if each["action"] == "email"),
        "webhooks": "\n".join(each["url"] for each in found if each["action"] == "webhook"),
    }


def maintenance_body(typed: Mapping[str, str], now: datetime) -> dict[str, Json]:
    """The request body of a maintenance window. Raises `Invalid`."""
    start, end = parse_dates(typed, now)
    hosts = list(dict.fromkeys(typed.get("hosts", "").replace(",", " ").split()))
    if not hosts:
        raise Invalid("Hosts: enter at least one", field="hosts")
    return {
        "name": typed.get("name", "") or "maintenance",
        "start_date": "now" if start is None else api_date(start),
        "end_date": api_date(end),
        "hosts": hosts,
    }


def host_query(text: str) -> str:
    """A host filter in the API's format: ``rack=9, vcpus>=16`` becomes a query; every other text stays as it is."""
    text = text.strip()
    found = [_COMPARISON.fullmatch(part.strip()) for part in text.split(",")]
    comparisons = [[each[2], f"${each[1]}", each[3]] for each in found if each is not None]
    if text.startswith("[") or len(comparisons) < len(found):
        return text
    return json.dumps(comparisons[0] if len(comparisons) == 1 else ["and", *comparisons])


def reservation_body(typed: Mapping[str, str]) -> dict[str, Json]:
    """The reservation in the API's format. Raises `Invalid`."""
    kind = typed.get("resource_type", "")
    if kind not in TYPES:
        raise Invalid(f"What to reserve: select one of {', '.join(TYPES.values())}")
    body: dict[str, Json] = {"resource_type": kind}
    if properties := host_query(typed.get("resource_properties", "")):
        body["resource_properties"] = properties
    elif kind in ("virtual:instance", "physical:host"):
        body["resource_properties"] = ""
    if kind == "physical:host":
        least = parse_number(typed, "min", "Minimum hosts")
        most = parse_number(typed, "max", "Maximum hosts") if typed.get("max") else least
        return body | {
            "min": least,
            "max": most,
            "hypervisor_properties": host_query(typed.get("hypervisor_properties", "")),
        }
    body["amount"] = parse_number(typed, "amount", "Amount")
    if word := typed.get("affinity", ""):
        if word not in AFFINITIES:
            raise Invalid(
                "Affinity: select none, affinity or anti-affinity, or leave the field empty", field="affinity"
            )
        body["affinity"] = AFFINITIES[word][1]
    if kind == "virtual:instance":
        return body | {
            "vcpus": parse_number(typed, "vcpus", "VCPUs"),
            "memory_mb": parse_number(typed, "memory_mb", "Memory"),
            "disk_gb": parse_number(typed, "disk_gb", "Disk"),
        }
    if kind == "flavor:instance":
        if not typed.get("flavor_id"):
            raise Invalid("Flavor: select one", field="flavor_id")
        return body | {"flavor_id": typed["flavor_id"]}
    return body | _any(typed)


def _any(typed: Mapping[str, str]) -> dict[str, Json]:
    resources = {
        name: _whole(text, f"Resources, {name}", "resources")
        for name, text in _pairs(typed.get("resources", ""), "Resources", "resources")
    }
    if not resources:
        raise Invalid("Resources: enter at least one class, for example VCPU=2", field="resources")
    body: dict[str, Json] = {"resources": resources}
    if traits := dict(_pairs(typed.get("traits", ""), "Traits", "traits")):
        body["traits"] = traits
    body |= {name: typed[name] for name in ("bitstream_id", "function_id", "function_name") if typed.get(name)}
    if properties := host_query(typed.get("hypervisor_properties", "")):
        body["hypervisor_properties"] = properties
    return body


def _pairs(text: str, field: str, name_of_field: str) -> list[tuple[str, str]]:
    pairs = []
    for line in filter(None, (line.strip() for line in text.replace(",", "\n").splitlines())):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not (name and equals and value):
            raise Invalid(f"{field}: {line!r} is not NAME=VALUE; enter one pair per line", field=name_of_field)
        pairs.append((name, value))
    return pairs


def parse_number(typed: Mapping[str, str], name: str, field: str) -> int:
    return _whole(typed.get(name, ""), field, name)


def _whole(text: str, field: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Invalid(f"{field}: {text or 'nothing'} is not a whole number", field=name)
    return int(text)


def date_of(text: str, field: str, name: str = "") -> datetime | None:
    """Parses the value of a browser's date field, or ``YYYY-MM-DD HH:MM``; None for an empty field or "now"."""
    text = text.strip()
    if text in ("", "now"):
        return None
    for shape in _SHAPES:
        try:
            return datetime.strptime(text, shape).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise Invalid(f"{field}: {text} is not a date and time; use the form 2026-12-01 08:00", field=name)


def api_date(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"


def offered_periods(rows: Iterable[Mapping[str, str]]) -> tuple[tuple[datetime, datetime, str], ...]:
    """((start, end, value of the buttons that use or hold this time), ...) of the offers of the API."""
    periods = [(parse_date(row["start_date"]), parse_date(row["end_date"])) for row in rows]
    return tuple((start, end, f"{field_date(start)}|{field_date(end)}") for start, end in periods)


def field_date(moment: datetime) -> str:
    """The format of ``<input type=datetime-local>``."""
    return f"{moment:%Y-%m-%dT%H:%M}"
