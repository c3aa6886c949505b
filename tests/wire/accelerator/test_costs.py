"""Counts for one accelerator request that do not depend on the machine: HTTP requests, transactions, statements, and
synced writes of the host. Raise a count only by decision.

docs/evidence/bench/arqs.md has the times.
"""

from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from sqlalchemy import event

from moorage.accelerator.drivers.simulated import default_simulated_host
from moorage.accelerator.store import accelerator_store
from moorage.db.session import read
from tests.plane import Way
from tests.unit.accelerator.rig import GPU, HOST, gpu, new_instance, rp
from tests.wire.accelerator.conftest import Wire
from tests.wire.accelerator.test_binding import CARD, Plane

GPUS = [device.pci_id for device in default_simulated_host() if device.type == "GPU"]


@dataclass
class Cost:
    requests: int = 0
    transactions: int = 0
    statements: int = 0
    waits_for_disk: int = 0  #: synced writes of the host's agent


class Counted:
    """A plane with counters for its requests."""

    def __init__(self, tmp_path, process) -> None:
        self.engine = engine = process.engine("accelerator")
        self.transactions = self.statements = 0
        event.listen(engine, "before_cursor_execute", self._count)
        self.way = Way()
        wire = Wire(self.way.over(process.transport("/accelerator")))
        self.plane = Plane(tmp_path, wire, engine, process.clock)
        self.plane.profile("card", CARD)

    def _count(self, _connection, _cursor, statement, *_):
        self.transactions += statement == "BEGIN IMMEDIATE"
        self.statements += not statement.startswith("BEGIN")

    @contextmanager
    def cost(self):
        cost, watch = Cost(), self.plane.rig.watch
        before = len(self.way.requests), self.transactions, self.statements
        watch.arm(None)
        yield cost
        cost.requests = len(self.way.requests) - before[0]
        cost.transactions = self.transactions - before[1]
        cost.statements = self.statements - before[2]
        cost.waits_for_disk = watch.events.count(("checkpoint",))


@pytest.fixture
def counted(tmp_path, process):
    return Counted(tmp_path, process)


@pytest.mark.parametrize("others", [0, 50])
def test_the_statements_of_a_request_from_its_creation_to_its_deletion(counted, others):
    """The counts must be the same with any number of other requests."""
    plane = counted.plane
    for _ in range(others):
        plane.requests("card")
    with counted.cost() as made:
        (arq,) = plane.requests("card")
    # Two of the statements are for the project's quota: one locks it, one counts the project's requests.
    assert made == Cost(requests=1, transactions=1, statements=5)
    with counted.cost() as begun:
        plane.bind({arq["uuid"]: rp(GPU)}, new_instance())
    assert begun == Cost(requests=1, transactions=1, statements=5)
    # Besides these, the claim and the report read whether there are open jobs, each in one prepared SELECT. One statement
    # makes the reports of the host old that were made before the job ended.
    with counted.cost() as bound:
        plane.run_host()
    assert bound == Cost(requests=2, transactions=2, statements=10, waits_for_disk=2)
    with counted.cost() as looked:
        assert plane.state_of(arq["uuid"]) == "Bound"
    assert looked == Cost(requests=1, transactions=0, statements=1)
    with counted.cost() as deleted:
        plane.wire("DELETE", f"/v2/accelerator_requests/{arq['uuid']}", role="service")
    assert deleted == Cost(requests=1, transactions=1, statements=3)
    with counted.cost() as unbound:
        plane.run_host()
    assert unbound == Cost(requests=2, transactions=2, statements=8, waits_for_disk=3)
    assert plane.rig.agent.attach_state.attachments == {}


def test_an_event_to_compute_needs_two_transactions(counted):
    plane = counted.plane
    (arq,) = plane.requests("card")
    plane.bind({arq["uuid"]: rp(GPU)}, new_instance())
    plane.run_host()
    before = counted.transactions
    assert plane.send_events() == [(arq["uuid"], "completed")]
    assert counted.transactions - before == 2


def test_after_a_job_the_tracker_sends_no_full_report(counted):
    """The report of the job has the states of the handles, so the tracker has nothing new to publish."""
    plane, rig = counted.plane, counted.plane.rig
    (arq,) = plane.requests("card")
    plane.bind({arq["uuid"]: rp(GPU)}, new_instance())
    before, records = (rig.changes, rig.reports), rig.records
    plane.run_host()
    assert _handles(counted) == {GPU: "attached"}
    plane.wire("DELETE", f"/v2/accelerator_requests/{arq['uuid']}", role="service")
    plane.run_host()
    assert _handles(counted) == {GPU: "free"}
    assert (rig.changes, rig.reports) == before
    assert rig.records > records


def test_a_plug_without_programming_needs_two_synced_writes_and_no_request(counted):
    """Two steps of the checkpoint (claimed, prepared and attached) and one call of the driver, with any number of other
    attached devices.
    """
    rig = counted.plane.rig
    for neighbours in (0, 1):
        with counted.cost() as plugged:
            rig.plug(new_instance(), gpu(), GPUS[neighbours])
        assert plugged == Cost(waits_for_disk=2)
        assert [event[:2] for event in rig.watch.events] == [("checkpoint",), ("simulated", "prepare"), ("checkpoint",)]
    assert rig.images.asked == []


def test_a_device_plugged_by_os_acc_is_reported_at_once(counted):
    rig, instance = counted.plane.rig, new_instance()
    before = rig.changes, rig.reports
    rig.plug(instance, gpu(), GPU)
    assert (rig.changes, rig.reports) == (before[0], before[1] + 1)
    rig.unplug(instance)
    assert (rig.changes, rig.reports) == (before[0], before[1] + 2)


def _handles(counted):
    with read(counted.engine) as connection:
        (part,) = accelerator_store.deployables(connection, name=f"{HOST}_{GPU}")
    return part.handles
