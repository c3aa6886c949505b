"""Why hosts fit or do not fit: the funnel of conditions, the closest hosts and the smallest change. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moorage.core.names import RESERVED_HOST_TRAIT
from moorage.dashboard.views.lease_view import LeaseDetails

Document = Mapping[str, Any]

_FILTERS = {"is_not_ruled_out": "usable for this server"}
#: Compute's words for the condition that hosts are neither disabled nor kept for leases.
_NOT_KEPT = "enabled and not under reservation"
#: Of the closest hosts: one that lacks nothing else.
_ONLY_KEPT = re.compile(rf"(?P<host>[^:]+): root_required=!{RESERVED_HOST_TRAIT}: (?P=host) has it")


@dataclass(frozen=True, slots=True)
class Stage:
    """A condition, the number of hosts before and after it, and example reasons for the hosts it removed."""

    condition: str
    before: int
    after: int
    considered: int  #: hosts before the first condition; scales the bars
    reasons: tuple[str, ...] = ()

    @property
    def removed(self) -> int:
        return self.before - self.after

    @property
    def width(self) -> float:
        return round(100 * self.after / self.considered, 2) if self.considered else 0.0

    @property
    def lost_width(self) -> float:
        return round(100 * self.removed / self.considered, 2) if self.considered else 0.0


@dataclass(frozen=True, slots=True)
class Near:
    """A host that almost fits."""

    host: str
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SuggestedChange:
    """`query`: the changed query, to explain again; empty if only text is available."""

    host: str
    parts: tuple[str, ...]
    query: str = ""


@dataclass(frozen=True, slots=True)
class Funnel:
    text: str
    fits: bool
    stages: tuple[Stage, ...] = ()
    hosts: tuple[str, ...] = ()  #: suitable hosts, best first; administrators only
    rejected: tuple[tuple[str, int], ...] = ()  #: (reason of the scheduler, number of hosts)
    closest: tuple[Near, ...] = ()
    change: SuggestedChange | None = None
    query: str = ""
    is_kept_for_leases: bool = False  #: whether no host is left because leases have all, so that reserving one helps


@dataclass(frozen=True, slots=True)
class BookingOffer:
    """When a server can be reserved that finds no host now."""

    periods: tuple[tuple[datetime, datetime, str], ...]  #: (start, end, both as the lease form writes them)
    reason: str  #: why a lease cannot start now, or at all; empty if it can start now
    running: tuple[LeaseDetails, ...]  #: that the viewer may see; the one that ends first is first
    more_running: bool = False  #: whether others run besides these


def of_query(document: Document, query: str) -> Funnel:
    """From the answer of placement's ``/moorage/v1/explain``."""
    steps = document["steps"]
    considered = steps[0]["before"] if steps else 0
    stages = [
        Stage(
            one["constraint"], one["before"], one["after"], considered,
            tuple(dict.fromkeys(removed["reason"] for removed in one["removed"])),
        )
        for one in steps
    ]  # fmt: skip
    change = document["change"]
    return Funnel(
        document["text"], bool(document["candidates"]), tuple(stages),
        closest=tuple(Near(one["provider"], tuple(one["lacks"])) for one in document["closest"]),
        change=change and SuggestedChange(change["provider"], tuple(change["parts"]), change["query"]), query=query,
    )  # fmt: skip


def of_server(document: Document) -> Funnel:
    """From compute's explanation, which adds the scheduler's filters. Only administrators see host names."""
    counts = [(one["constraint"], one["before"], one["after"]) for one in document["constraints"]]
    counts += [
        (_FILTERS.get(one["filter"], one["filter"].replace("_", " ")), one["before"], one["after"])
        for one in document["filters"]
    ]
    considered = counts[0][1] if counts else 0
    kept = next((before for words, before, after in counts if words == _NOT_KEPT and not after), 0)
    closest, change = document.get("closest", ()), document.get("change") or ""
    if kept and all(_ONLY_KEPT.fullmatch(line) for line in closest):
        closest, change = (), ""  # "remove the trait" is no advice; reserving is
    return Funnel(
        _kept_text(kept, considered) if kept else document["text"], bool(document["hosts"]),
        tuple(Stage(condition, before, after, considered) for condition, before, after in counts),
        tuple(document.get("host_names", ())), tuple(sorted(document["rejected"].items())),
        tuple(_near(line) for line in closest),
        SuggestedChange("", (change,)) if change else None, document.get("query", ""), bool(kept),
    )  # fmt: skip


def _kept_text(kept: int, considered: int) -> str:
    """That conditions left `kept` of the `considered` hosts, and leases none of these."""
    which = f"All {kept:,} hosts" if kept > 1 else "The only host"
    fit = "" if kept == considered else " that fit otherwise" if kept > 1 else " that fits otherwise"
    return f"{which}{fit} {'are' if kept > 1 else 'is'} kept for leases, or disabled: reserve first."


def _near(line: str) -> Near:
    host, _, lack = line.partition(": ")
    return Near(host, (lack,) if lack else ())


# --- pasted queries -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PastedQuery:
    """Either a Placement query, or extra specs to combine with sizes."""

    pairs: tuple[tuple[str, str], ...] = ()
    extra_specs: tuple[tuple[str, str], ...] = ()


def parse_pasted_query(text: str) -> PastedQuery:
    """Parses a query on one line (``resources=VCPU:4&required=...``, optionally with a URL before the ``?``), or extra
    specs, one per line (``resources:VCPU=4``). Raises `ValueError`, naming the part that is neither.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    if not lines:
        raise ValueError("enter a query such as resources=VCPU:4,MEMORY_MB:1024, or extra specs, one per line")
    if len(lines) == 1 and _is_query(lines[0]):
        return PastedQuery(pairs=_pairs(lines[0]))
    return PastedQuery(extra_specs=tuple(_spec(line) for line in lines))


def _is_query(line: str) -> bool:
    """Names of extra specs contain a colon; names of query parameters do not."""
    return ":" not in line.rpartition("?")[2].partition("=")[0]


def _pairs(line: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in line.rpartition("?")[2].split("&"):
        name, equals, value = part.partition("=")
        if not name or not equals:
            raise ValueError(f"{part!r} is not name=value; enter a query such as resources=VCPU:4&required=CUSTOM_SSD")
        pairs.append((name, value))
    return tuple(pairs)


def _spec(line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{line!r} is not an extra spec; enter one name=value per line, for example resources:VCPU=4")
    return name.strip(), value.strip().strip("\"'")


def query_text(pairs: Sequence[tuple[str, str]]) -> str:
    return "&".join(f"{name}={value}" for name, value in pairs)
