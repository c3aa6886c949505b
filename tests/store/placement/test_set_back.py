"""A database that returns to an older state below a running server: a restored backup, or a standby that took over
without the last commits.
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
    provider = service.providers.create("host", None, None).provider
    return service.providers.set_inventories(provider.uuid, 0, {"VCPU": Inventory(total=4)})


def test_what_was_written_after_the_backup_is_forgotten(service, host, tmp_path):
    copy(tmp_path / "moorage.sqlite", tmp_path / "backup")
    lost = service.providers.create("lost", None, None).provider
    service.allocations.claim([AllocationWrite(CONSUMER, {host.uuid: {"VCPU": 4}}, project_id="red", user_id="alice")])
    assert service.providers.provider(host.uuid).used == {"VCPU": 4}
    copy(tmp_path / "backup", tmp_path / "moorage.sqlite")
    assert service.providers.provider(host.uuid).used == {}
    with pytest.raises(NotFound):
        service.providers.provider(lost.uuid)


def test_the_next_write_is_decided_on_what_there_is(service, host, tmp_path):
    """Nobody has read in between, so the writer itself must notice."""
    copy(tmp_path / "moorage.sqlite", tmp_path / "backup")
    service.allocations.claim([AllocationWrite(CONSUMER, {host.uuid: {"VCPU": 4}}, project_id="red", user_id="alice")])
    copy(tmp_path / "backup", tmp_path / "moorage.sqlite")
    service.allocations.claim([AllocationWrite(CONSUMER, {host.uuid: {"VCPU": 3}}, project_id="red", user_id="alice")])
    assert service.providers.provider(host.uuid).used == {"VCPU": 3}
