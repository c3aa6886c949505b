"""The calendar page: the window shown, usage per resource class, and bars for leases. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

from moorage.dashboard.views.reservation_documents import (
    AllocationDocument,
    CalendarDocument,
    HostDocument,
    LeaseDocument,
)
from moorage.dashboard.views.units import HOSTS, amount_text, class_words

#: {days shown: (minutes per step, minutes per drag step)}
SPANS: Mapping[int, tuple[int, int]] = {1: (60, 15), 7: (360, 60), 30: (1440, 360), 90: (4320, 1440)}
NAMES: Mapping[int, str] = {1: "Day", 7: "Week", 30: "Month", 90: "Quarter"}
DEFAULT_DAYS = 7

#: Maximum number of rows; the page says how many are left out.
MAX_CLASSES = 40
MAX_LEASES = 40
#: Maximum number of overlapping bars in one row.
MAX_LANES = 5

_ACCELERATORS = ("FPGA", "GPU", "ACCELERATOR", "PCI")


@dataclass(frozen=True, slots=True)
class ShownDays:
    """The period on the page: whole steps, starting at midnight."""

    start: datetime
    days: int

    @property
    def end(self) -> datetime:
        return self.start + timedelta(days=self.days)

    @property
    def step(self) -> timedelta:
        return timedelta(minutes=SPANS[self.days][0])

    @property
    def drag_minutes(self) -> int:
        return SPANS[self.days][1]

    def moved(self, windows: int) -> "ShownDays":
        return ShownDays(self.start + windows * timedelta(days=self.days), self.days)

    def steps(self) -> list[datetime]:
        return [self.start + number * self.step for number in range(int((self.end - self.start) / self.step))]

    def percent(self, moment: datetime) -> float:
        """Horizontal position in percent, clamped to the window."""
        share = (moment - self.start) / (self.end - self.start)
        return round(100 * min(max(share, 0.0), 1.0), 3)


def parse_window(start: str | None, days: str | None, now: datetime) -> ShownDays:
    """The window from the query parameters; today and a week if they are missing or invalid."""
    length = next((each for each in SPANS if str(each) == days), DEFAULT_DAYS)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        begin = datetime.strptime(start or "", "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        begin = today
    farthest = timedelta(days=3650)
    return ShownDays(min(max(begin, today - farthest), today + farthest), length)


@dataclass(frozen=True, slots=True)
class Tick:
    """A label above `columns` columns."""

    text: str
    columns: int
    start: datetime


def ticks(shown: ShownDays) -> list[Tick]:
    steps = shown.steps()
    if shown.days == 1:
        return [Tick(f"{each:%H}", 1, each) for each in steps]
    if shown.days == 7:
        return [Tick(f"{each:%a} {each.day}", 4, each) for each in steps[::4]]
    return [Tick(f"{each.day} {each:%b}", 3, each) for each in steps[::3]]


@dataclass(frozen=True, slots=True)
class UtilisationCell:
    """One step of one resource class. `level` is 0 (empty) to 5 (full)."""

    start: datetime
    end: datetime
    used: int
    free: int
    percent: int
    level: int


@dataclass(frozen=True, slots=True)
class HeatRow:
    name: str
    words: str
    kind: str
    capacity: int
    cells: Sequence[UtilisationCell]

    def text(self, amount: int) -> str:
        """An amount of this class with its unit."""
        return amount_text(self.name, amount)


def heat_rows(calendar: CalendarDocument, shown: ShownDays) -> tuple[list[tuple[str, list[HeatRow]]], int]:
    """([(group, a row per class)], classes left out). `calendar` is the API's answer, in steps of the window."""
    capacity: Mapping[str, int] = calendar["capacity"]
    steps = shown.steps()
    used: dict[str, list[int]] = {name: [0] * len(steps) for name in capacity}
    for each in calendar["busy"]:
        first = (parse_date(each["start_date"]) - shown.start) // shown.step
        last = -((shown.start - parse_date(each["end_date"])) // shown.step)
        for name, amount in each["used"].items():
            if name in used:
                used[name][max(first, 0) : last] = [amount] * (min(last, len(steps)) - max(first, 0))
    rows = [_row(name, capacity[name], used[name], steps, shown.step) for name in sorted(capacity, key=_order)]
    groups = [(kind, list(group)) for kind, group in groupby(rows[:MAX_CLASSES], key=lambda row: row.kind)]
    return groups, max(0, len(rows) - MAX_CLASSES)


def _row(name: str, capacity: int, used: Sequence[int], steps: Sequence[datetime], step: timedelta) -> HeatRow:
    cells = [_cell(start, start + step, amount, capacity) for start, amount in zip(steps, used, strict=True)]
    return HeatRow(name, class_words(name), kind_of(name),
                   capacity, cells)  # fmt: skip


def _cell(start: datetime, end: datetime, used: int, capacity: int) -> UtilisationCell:
    percent = min(100, round(100 * used / capacity)) if capacity else 100
    # Any usage shows as at least 1 percent, and anything below full as at most 99 percent.
    percent = max(1, percent) if used else percent
    percent = min(99, percent) if used < capacity else percent
    level = 5 if percent == 100 else 0 if percent == 0 else 1 + percent // 25
    return UtilisationCell(start, end, used, max(0, capacity - used), percent, level)


def kind_of(name: str) -> str:
    if name == HOSTS:
        return "Hosts"
    if any(word in name for word in _ACCELERATORS):
        return "Accelerators"
    return "Custom classes" if name.startswith("CUSTOM_") else "Processors, memory, disk"


_KINDS = ("Hosts", "Processors, memory, disk", "Accelerators", "Custom classes")
_FIRST = ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB")


def _order(name: str) -> tuple[int, int, str]:
    return _KINDS.index(kind_of(name)), _FIRST.index(name) if name in _FIRST else len(_FIRST), name


@dataclass(frozen=True, slots=True)
class CalendarPeriod:
    """A named period; `lease_id` links to the lease's page."""

    lease_id: str
    name: str
    status: str
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class PeriodBar:
    """A period inside a window: `x` and `width` in percent, `lane` counted from 0 at the top."""

    period: CalendarPeriod
    x: float
    width: float
    lane: int


def bars(periods: Iterable[CalendarPeriod], shown: ShownDays) -> tuple[list[PeriodBar], int]:
    """(bars that overlap the window, periods left out because all lanes are taken). Bars in one lane do not overlap."""
    found: list[PeriodBar] = []
    ends: list[datetime] = []
    left_out = 0
    for period in sorted(periods, key=lambda each: (each.start, each.end)):
        if period.end <= shown.start or period.start >= shown.end:
            continue
        lane = next((number for number, end in enumerate(ends) if end <= period.start), len(ends))
        if lane >= MAX_LANES:
            left_out += 1
            continue
        ends[lane:lane + 1] = [period.end]  # fmt: skip
        x = shown.percent(period.start)
        found.append(PeriodBar(period, x, round(max(shown.percent(period.end) - x, 0.4), 3), lane))
    return found, left_out


@dataclass(frozen=True, slots=True)
class Track:
    """A named row of bars."""

    name: str
    note: str
    bars: Sequence[PeriodBar]
    lanes: int
    left_out: int


def track(name: str, note: str, periods: Iterable[CalendarPeriod], shown: ShownDays) -> Track:
    found, left_out = bars(periods, shown)
    return Track(name, note, found, 1 + max((bar.lane for bar in found), default=0), left_out)


def of_lease(lease: LeaseDocument) -> CalendarPeriod:
    return CalendarPeriod(
        lease["id"], lease["name"], lease["status"], parse_date(lease["start_date"]), parse_date(lease["end_date"])
    )


def of_hosts(hosts: Sequence[HostDocument], allocations: Sequence[AllocationDocument], shown: ShownDays) -> list[Track]:
    """One track per host. Several slots of one reservation on a host become one bar with a count."""
    slots = {row["resource_id"]: row["reservations"] for row in allocations}
    tracks = []
    for host in hosts:
        counts: dict[tuple[str, str, str], int] = {}
        for slot in slots.get(host["id"], ()):
            key = (slot["lease_id"], slot["start_date"], slot["end_date"])
            counts[key] = counts.get(key, 0) + 1
        periods = [
            CalendarPeriod(
                lease,
                f"lease {lease[:8]}" + (f", {count} slots" if count > 1 else ""),
                "",
                parse_date(start),
                parse_date(end),
            )
            for (lease, start, end), count in counts.items()
        ]
        note = f"{host['vcpus']} VCPU" + ("" if host["reservable"] else ", not reservable")
        tracks.append(track(host["hypervisor_hostname"], note, periods, shown))
    return tracks


def of_projects(leases: Sequence[LeaseDocument], name_of: Callable[[str], str], shown: ShownDays) -> list[Track]:
    """`name_of`: the name of a project, by its id."""
    by_project: dict[str, list[CalendarPeriod]] = {}
    for lease in leases:
        by_project.setdefault(lease["project_id"], []).append(of_lease(lease))
    return [
        track(name_of(project), f"{len(periods)} {'lease' if len(periods) == 1 else 'leases'}", periods, shown)
        for project, periods in sorted(by_project.items(), key=lambda row: name_of(row[0]))
    ]


def parse_date(text: str) -> datetime:
    """Parses a date of the Reservation API: UTC without an offset."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
