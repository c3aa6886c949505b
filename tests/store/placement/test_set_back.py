"""A database that returns to an older state while a service is running.

The reason may be a restored backup, or a standby that took over without the last commits.
"""

import contextlib
import sqlite3

import pytest

from moorage.core.errors import NotFound
from moorage.db.migrations import upgrade
from moorage.placement.forest.model import Inventory
from moorage.placement.rules.allocation_writes import AllocationWrite
from moorage.placement.service.service import PlacementService

CONSUMER = "00000000-0000-4000-8000-0000000000c1"


@pytest.fixture
def service(sqlite_engine, clock, ids):
    upgrade(sqlite_engine, "placement")
    service = PlacementService(sqlite_engine, clock, ids)
    service.start()
    return service


def copy(source, target):
    with contextlib.closing(sqlite3.connect(source)) as old, contextlib.closing(sqlite3.connect(target)) as new:
        old.backup(new)


@pytest.fixture
def host(service):
    provider = service.providers.create_provider("host", None, None).provider
    return service.providers.set_inventories(provider.uuid, 0, {"VCPU": Inventory(total=4)})


def test_after_a_restored_backup_reads_show_the_state_of_the_backup(service, host, tmp_path):
    copy(tmp_path / "moorage.sqlite", tmp_path / "backup")
    lost = service.providers.create_provider("lost", None, None).provider
    service.allocations.claim([AllocationWrite(CONSUMER, {host.uuid: {"VCPU": 4}}, project_id="red", user_id="alice")])
    assert service.providers.provider(host.uuid).used == {"VCPU": 4}
    copy(tmp_path / "backup", tmp_path / "moorage.sqlite")
    assert service.providers.provider(host.uuid).used == {}
    with pytest.raises(NotFound):
        service.providers.provider(lost.uuid)


def test_after_a_restored_backup_the_next_claim_is_decided_on_the_state_of_the_backup(service, host, tmp_path):
    """There is no read in between, so the claim itself must notice the older state."""
    copy(tmp_path / "moorage.sqlite", tmp_path / "backup")
    service.allocations.claim([AllocationWrite(CONSUMER, {host.uuid: {"VCPU": 4}}, project_id="red", user_id="alice")])
    copy(tmp_path / "backup", tmp_path / "moorage.sqlite")
    service.allocations.claim([AllocationWrite(CONSUMER, {host.uuid: {"VCPU": 3}}, project_id="red", user_id="alice")])
    assert service.providers.provider(host.uuid).used == {"VCPU": 3}
