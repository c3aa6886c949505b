from datetime import UTC, datetime

from moorage.reservation.capacity import calendar as calendar_module
from moorage.reservation.capacity import usage_profiles
from moorage.reservation.capacity.calendar import Calendar, HostCapacity, HostUsage, utilisation
from moorage.reservation.model.slot_demand import WHOLE_HOST, SlotDemand

DAYS = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 8)]
ONE = SlotDemand({"VCPU": 1})


def calendar(*usages: HostUsage, cores: int = 8) -> Calendar:
    return Calendar([HostCapacity(1, {"VCPU": cores, "MEMORY_MB": 1024})], usages)


def test_usage_does_not_include_the_end_of_its_period():
    """A16 (instance-reservation): a lease may start when another one on its host ends (D5: refused by the peer)."""
    full = calendar(HostUsage(1, DAYS[0], DAYS[1], {"VCPU": 8}))
    assert full.slots(ONE, DAYS[1], DAYS[2]).tolist() == [8]
    assert full.slots(ONE, DAYS[0], DAYS[1]).tolist() == [0]


def test_usages_that_follow_each_other_within_the_period_are_not_added_up():
    """D5: the peer answers 2 or 3 here, depending on the order of the rows."""
    two = calendar(HostUsage(1, DAYS[0], DAYS[1], {"VCPU": 2}), HostUsage(1, DAYS[1], DAYS[2], {"VCPU": 5}))
    assert two.slots(ONE, DAYS[0], DAYS[2]).tolist() == [3]


def test_usage_outside_the_window_does_not_count():
    busy = calendar(HostUsage(1, DAYS[0], DAYS[1], {"VCPU": 8}), HostUsage(1, DAYS[4], DAYS[5], {"VCPU": 8}))
    assert busy.slots(ONE, DAYS[2], DAYS[3]).tolist() == [8]


def test_the_scarcest_resource_limits_the_number_of_slots():
    assert calendar().slots(SlotDemand({"VCPU": 1, "MEMORY_MB": 512}), DAYS[0], DAYS[1]).tolist() == [2]


def test_a_resource_that_no_host_has_fits_nowhere():
    assert calendar().slots(SlotDemand({"VGPU": 1}), DAYS[0], DAYS[1]).tolist() == [0]


def test_an_instance_larger_than_max_unit_fits_nowhere():
    host = HostCapacity(1, {"VCPU": 64}, {"VCPU": 16})
    assert Calendar([host], []).slots(SlotDemand({"VCPU": 32}), DAYS[0], DAYS[1]).tolist() == [0]
    assert Calendar([host], []).slots(SlotDemand({"VCPU": 16}), DAYS[0], DAYS[1]).tolist() == [4]


def test_an_overcommitted_host_has_no_slots_rather_than_negative_ones():
    shrunk = calendar(HostUsage(1, DAYS[0], DAYS[1], {"VCPU": 8}), cores=4)
    assert shrunk.slots(ONE, DAYS[0], DAYS[1]).tolist() == [0]


def test_a_whole_host_is_free_only_if_nothing_on_it_is_in_use():
    whole = SlotDemand(whole_host=True)
    busy = calendar(HostUsage(1, DAYS[1], DAYS[2], {"VCPU": 1}))
    assert busy.slots(whole, DAYS[0], DAYS[1]).tolist() == [1]
    assert busy.slots(whole, DAYS[0], DAYS[2]).tolist() == [0]


def test_a_host_that_is_reserved_whole_has_no_slots():
    """Even if its capacity has grown since it was reserved."""
    lent = calendar(HostUsage(1, DAYS[1], DAYS[2], {WHOLE_HOST: 1}), cores=16)
    assert lent.slots(ONE, DAYS[0], DAYS[1]).tolist() == [16]
    assert lent.slots(ONE, DAYS[0], DAYS[2]).tolist() == [0]
    assert lent.slots(SlotDemand(whole_host=True), DAYS[1], DAYS[2]).tolist() == [0]


def test_usage_of_a_class_that_the_calendar_does_not_have_is_added():
    changed = calendar().with_usage([HostUsage(1, DAYS[0], DAYS[1], {"VCPU": 3, "VGPU": 1})])
    assert changed.slots(ONE, DAYS[0], DAYS[1]).tolist() == [5]
    assert changed.slots(SlotDemand({"VGPU": 1}), DAYS[0], DAYS[1]).tolist() == [0]


def test_fractions_of_a_second_are_rounded_so_that_a_period_is_never_too_short():
    late = DAYS[1].replace(microsecond=1)
    assert calendar(HostUsage(1, DAYS[0], late, {"VCPU": 8})).slots(ONE, DAYS[1], DAYS[2]).tolist() == [0]


def test_a_calendar_may_have_no_hosts():
    assert Calendar([], []).slots(ONE, DAYS[0], DAYS[1]).tolist() == []


def test_replacing_a_host_does_not_copy_the_usage_of_other_hosts(monkeypatch):
    hosts = [HostCapacity(number, {"VCPU": 8}) for number in range(1, 101)]
    there = Calendar(hosts, [HostUsage(number, *DAYS[:2], {"VCPU": 1}) for number in range(1, 101)])
    rows, block = [], calendar_module.UsageProfiles
    monkeypatch.setattr(calendar_module, "UsageProfiles", lambda n, its: rows.append(len(its.row)) or block(n, its))
    changed = there.replaced(hosts[:2], [HostUsage(1, *DAYS[:2], {"VCPU": 3})]).with_usage(
        [HostUsage(5, *DAYS[:2], {"VCPU": 2})]
    )
    assert changed.slots(ONE, DAYS[0], DAYS[1]).tolist()[:6] == [5, 8, 7, 7, 5, 7]
    assert rows == [3], "one row of the first host, none of the second, two of the fifth"


def test_utilisation_sums_up_all_rows_once_and_later_only_the_changed_ones(monkeypatch):
    """So the cost of showing three months depends on the number of steps, not on the number of reservations."""
    hosts = [HostCapacity(number, {"VCPU": 8}) for number in range(1, 101)]
    there = Calendar(hosts, [HostUsage(number, *DAYS[:2], {"VCPU": 1}) for number in range(1, 101)])
    rows, total = [], usage_profiles.total
    for module in (usage_profiles, calendar_module):
        monkeypatch.setattr(module, "total", lambda its: rows.append(len(its.row)) or total(its))

    def most(calendar):
        return [each.used.get("VCPU", 0) for each in utilisation(calendar, DAYS[0], DAYS[2], DAYS[1] - DAYS[0])]

    assert most(there) == [100, 0]
    assert max(rows) == 100
    rows.clear()
    assert most(there.with_usage([HostUsage(7, *DAYS[1:3], {"VCPU": 3})])) == [100, 3]
    assert most(there.replaced(hosts[:2], [HostUsage(1, *DAYS[:2], {"VCPU": 4})])) == [102, 0]
    assert sum(rows) < 12, "only the rows of the changed hosts are read again, and the number of used hosts"
    assert max(rows) == 3, "the new row of the first host, and the old ones of the first and second"


def test_a_host_with_any_usage_is_not_free_as_a_whole():
    """Hosts with servers of leases were shown as free, although nobody could reserve them."""
    hosts = [HostCapacity(number, {"VCPU": 8}) for number in range(1, 21)]
    servers = [HostUsage(number, *DAYS[:2], {"VCPU": 1}) for number in (1, 1, 2, 3, 4)]
    there = Calendar(hosts, [*servers, *(HostUsage(number, *DAYS[:2], {WHOLE_HOST: 1}) for number in range(5, 11))])
    (first, second) = utilisation(there, DAYS[0], DAYS[2], DAYS[1] - DAYS[0])
    assert (first.used["HOSTS"], second.used.get("HOSTS", 0)) == (10, 0)
    assert there.slots(SlotDemand(whole_host=True), DAYS[0], DAYS[1]).sum() == 20 - first.used["HOSTS"]


def test_nothing_of_a_host_that_is_reserved_as_a_whole_is_free():
    """The calendar said that its processors are free, but nobody could reserve them."""
    hosts = [HostCapacity(number, {"VCPU": 8, "MEMORY_MB": number}) for number in range(1, 5)]
    servers = [HostUsage(1, *DAYS[:2], {"VCPU": 3})]
    there = Calendar(hosts, [*servers, *(HostUsage(number, *DAYS[1:3], {WHOLE_HOST: 1}) for number in (1, 2, 4))])
    (first, second) = utilisation(there, DAYS[0], DAYS[2], DAYS[1] - DAYS[0])
    assert first.used == {"VCPU": 3, "HOSTS": 1}
    assert second.used == {"VCPU": 24, "MEMORY_MB": 7, "HOSTS": 3}
    (only,) = utilisation(there, DAYS[1], DAYS[2], DAYS[1] - DAYS[0], hosts=[2, 3])
    assert only.used == {"VCPU": 8, "MEMORY_MB": 2, "HOSTS": 1}
    freed = there.with_usage([HostUsage(4, *DAYS[1:3], {WHOLE_HOST: -1})])
    assert utilisation(freed, DAYS[1], DAYS[2], DAYS[1] - DAYS[0])[0].used["VCPU"] == 16
    grown = there.replaced([HostCapacity(2, {"VCPU": 10, "MEMORY_MB": 2})], [HostUsage(2, *DAYS[1:3], {WHOLE_HOST: 1})])
    assert utilisation(grown, DAYS[1], DAYS[2], DAYS[1] - DAYS[0])[0].used["VCPU"] == 26
