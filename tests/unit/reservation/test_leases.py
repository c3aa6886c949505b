from dataclasses import replace
from itertools import pairwise

import pytest

from moorage.core.errors import Conflict
from moorage.reservation.model.leases import (
    EVENT_STATES,
    LEASE_STATES,
    RESERVATION_STATES,
    RUNS_IN,
    EventStatus,
    EventType,
    LeaseStatus,
    ReservationStatus,
    status_after_update,
)
from moorage.reservation.model.reservation_requests import Size
from tests.unit.reservation.test_lease_update import ACTIVE, ENDED, PENDING


def test_a_lease_can_be_deleted_in_every_status():
    """D7: a lease of the peer can stay in STARTING for ever."""
    assert LEASE_STATES.states_before(LeaseStatus.DELETING) == set(LeaseStatus) - {LeaseStatus.DELETING}


def test_the_usual_statuses_of_a_lease_follow_each_other():
    way = [
        LeaseStatus.CREATING,
        LeaseStatus.PENDING,
        LeaseStatus.STARTING,
        LeaseStatus.ACTIVE,
        LeaseStatus.TERMINATING,
        LeaseStatus.TERMINATED,
    ]
    for before, after in pairwise(way):
        assert LEASE_STATES.check_transition(before, after) is after
    with pytest.raises(Conflict, match="cannot go from TERMINATED to ACTIVE"):
        LEASE_STATES.check_transition(LeaseStatus.TERMINATED, LeaseStatus.ACTIVE)


def test_deleted_is_a_final_status_of_a_reservation():
    assert ReservationStatus.DELETED not in RESERVATION_STATES.allowed


def test_every_other_status_of_an_event_can_change_back_to_undone():
    assert EVENT_STATES.states_before(EventStatus.UNDONE) == {
        EventStatus.IN_PROGRESS,
        EventStatus.DONE,
        EventStatus.ERROR,
    }


def test_an_interrupted_event_can_run_again_in_the_lease_status_that_it_has_set():
    """D7."""
    for kind in EventType:
        admitted, running = RUNS_IN[kind]
        if running is not None:
            assert running in admitted
            for status in admitted - {running}:
                LEASE_STATES.check_transition(status, running)


def test_the_status_of_a_lease_after_an_update_follows_from_its_events():
    for each in (PENDING, ACTIVE, ENDED):
        assert status_after_update(replace(each, status=LeaseStatus.UPDATING)) is each.status


def test_a_size_without_disk_requests_no_disk():
    assert Size(1, 512, 0).resources() == {"VCPU": 1, "MEMORY_MB": 512}
