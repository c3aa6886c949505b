from datetime import UTC, datetime, timedelta

from moorage.reservation.capacity.calendar import Calendar, HostCapacity, HostUsage
from moorage.reservation.capacity.host_selection import CapacityRequest
from moorage.reservation.capacity.next_slot import first_fit
from moorage.reservation.model.slot_demand import SlotDemand

NOW, HOUR, DAY = datetime(2026, 1, 1, tzinfo=UTC), timedelta(hours=1), timedelta(days=1)


class Counting(Calendar):
    """Counts the checked times and hosts."""

    looked = 0

    def fitting(self, demand, used, rows):
        self.looked += len(rows)
        return super().fitting(demand, used, rows)


def looked_at(days):
    """For an answer in the first hours of this many days, with an end in each hour."""
    taken = [
        HostUsage(1, NOW + hour * HOUR, NOW + (hour + 1) * HOUR, {"VCPU": 8 - hour % 2}) for hour in range(24 * days)
    ]
    calendar = Counting([HostCapacity(1, {"VCPU": 8})], taken)
    found = first_fit(calendar, [CapacityRequest("r", SlotDemand({"VCPU": 1}), 1)], NOW, NOW + 90 * DAY, HOUR)
    assert found == NOW + HOUR
    return calendar.looked


def test_an_answer_that_lies_near_does_not_look_at_what_is_far():
    """G1: 10 ms for 10,000 hosts with 250,000 slots; a check of all of them took 69."""
    assert looked_at(90) == looked_at(3)
