"""The calendar page: usage per resource class, and bars for leases. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby

from moorage.dashboard.views.calendar_period import ShownPeriod
from moorage.dashboard.views.reservation_documents import (
    AllocationDocument,
    CalendarDocument,
    HostDocument,
    LeaseDocument,
    LeaseHeadDocument,
    parse_date,
)
from moorage.dashboard.views.units import HOSTS, amount_text, class_words

#: Maximum number of rows; the page says how many are left out.
MAX_CLASSES = 40
MAX_LEASES = 40
#: Maximum number of overlapping bars in one row, at first and if the viewer wants to see all.
MAX_LANES, ALL_LANES = 5, 100
#: Number of colours for leases, `hue-0` onwards in `calendar.css`.
HUES = 6

_ACCELERATORS = ("FPGA", "GPU", "ACCELERATOR", "PCI")


@dataclass(frozen=True, slots=True)
class UtilisationCell:
    """One column of one resource class. `level` is 0 (empty) to 5 (full)."""

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

    @property
    def form(self) -> dict[str, str]:
        """The fields of the form of a lease that reserves this class. The form's own kind needs none."""
        if self.name == HOSTS:
            return {"resource_type": "physical:host"}
        if self.name in _FIRST:
            return {}
        return {"resource_type": "resource:any", "resources": f"{self.name}=1"}


def heat_rows(calendar: CalendarDocument, shown: ShownPeriod) -> tuple[list[tuple[str, list[HeatRow]]], int]:
    """([(group, a row per class)], classes left out). `calendar` is the API's answer, in steps of the period."""
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
class LeasePeriod:
    """A lease on the calendar; `lease_id` links to its page.

    `project`: its name where leases of several projects are in a row, otherwise empty. `note`: ``3 slots``, or empty.
    """

    lease_id: str
    name: str
    status: str
    start: datetime
    end: datetime
    project: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class LeaseBar:
    """A lease inside a period: `x` and `width` in percent, `lane` counted from 0 at the top.

    `hue` tells it from its neighbours. A lease has the same one in all rows.
    """

    period: LeasePeriod
    x: float
    width: float
    lane: int
    hue: int


@dataclass(frozen=True, slots=True)
class Track:
    """A named row of bars. `key` names it in links: a lease's id, a host's or a project's name."""

    name: str
    note: str
    bars: Sequence[LeaseBar]
    lanes: int
    left_out: int
    key: str


class TrackMaker:
    """Makes the rows of one page, in their order."""

    def __init__(self, shown: ShownPeriod, max_lanes: int = MAX_LANES) -> None:
        self._shown = shown
        self._max_lanes = max_lanes
        self._hues: dict[str, int] = {}
        self._used: Counter[int] = Counter()

    def track(self, name: str, note: str, periods: Iterable[LeasePeriod], key: str = "") -> Track:
        """Bars in one lane do not overlap. `left_out`: periods for which there is no lane."""
        bars: list[LeaseBar] = []
        ends: list[datetime] = []
        used: Counter[int] = Counter()
        left_out = 0
        for period in sorted(periods, key=lambda each: (each.start, each.end)):
            if period.end <= self._shown.start or period.start >= self._shown.end:
                continue
            lane = next((number for number, end in enumerate(ends) if end <= period.start), len(ends))
            if lane >= self._max_lanes:
                left_out += 1
                continue
            ends[lane:lane + 1] = [period.end]  # fmt: skip
            x = self._shown.percent(period.start)
            width = round(max(self._shown.percent(period.end) - x, 0.4), 3)
            hue = self._hue(period.lease_id, used)
            used[hue] += 1
            bars.append(LeaseBar(period, x, width, lane, hue))
        return Track(name, note, bars, max(1, len(ends)), left_out, key)

    def _hue(self, lease_id: str, in_row: Counter[int]) -> int:
        """The lease's hue. A new lease gets the one that this row, and then the page, has used least."""
        if lease_id not in self._hues:
            self._hues[lease_id] = min(range(HUES), key=lambda hue: (in_row[hue], self._used[hue]))
            self._used[self._hues[lease_id]] += 1
        return self._hues[lease_id]


def of_lease(lease: LeaseHeadDocument) -> LeasePeriod:
    start, end = parse_date(lease["start_date"]), parse_date(lease["end_date"])
    return LeasePeriod(lease["id"], lease["name"], lease["status"], start, end)


def of_leases(leases: Sequence[LeaseHeadDocument], maker: TrackMaker) -> list[Track]:
    return [maker.track(each["name"], each["status"], [of_lease(each)], each["id"]) for each in leases]


def of_hosts(
    hosts: Sequence[HostDocument],
    allocations: Sequence[AllocationDocument],
    name_of: Callable[[str], str],
    maker: TrackMaker,
) -> list[Track]:
    """One track per host. Several slots of one lease on a host become one bar with a count.

    `name_of`: the name of a project, by its id.
    """
    slots = {row["resource_id"]: row["reservations"] for row in allocations}
    tracks = []
    for host in hosts:
        counts: dict[LeasePeriod, int] = {}
        for slot in slots.get(host["id"], ()):
            start, end = parse_date(slot["start_date"]), parse_date(slot["end_date"])
            project = name_of(slot["project_id"])
            period = LeasePeriod(slot["lease_id"], slot["lease_name"], slot["lease_status"], start, end, project)
            counts[period] = counts.get(period, 0) + 1
        periods = [replace(period, note=f"{count} slots") if count > 1 else period for period, count in counts.items()]
        name, note = host["hypervisor_hostname"], f"{host['vcpus']} VCPU"
        tracks.append(maker.track(name, note if host["reservable"] else f"{note}, not reservable", periods, name))
    return tracks


def of_projects(leases: Sequence[LeaseDocument], name_of: Callable[[str], str], maker: TrackMaker) -> list[Track]:
    """`name_of`: the name of a project, by its id."""
    by_project: dict[str, list[LeasePeriod]] = {}
    for lease in leases:
        by_project.setdefault(lease["project_id"], []).append(of_lease(lease))
    rows = sorted(((name_of(project), periods) for project, periods in by_project.items()), key=lambda row: row[0])
    return [
        maker.track(name, f"{len(periods)} {'lease' if len(periods) == 1 else 'leases'}", periods, name)
        for name, periods in rows
    ]
