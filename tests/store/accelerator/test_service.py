"""The accelerator service over its tables.

On all three databases: rows of each table are written, changed and found, and duplicate names and uuids are refused.
Unit tests cover the consequences of a report.
"""

import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from moorage.accelerator.model.devices import Function
from moorage.accelerator.model.profile import NewProfile
from moorage.accelerator.model.reports import AttachmentReport, DeployableReport, DeviceReport, HandleReport
from moorage.accelerator.service.service import AcceleratorService
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Invalid, NotFound, OverQuota, Unavailable
from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.wakeups import InProcessHints
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database

RP = "11111111-0000-4000-8000-000000000001"
ONE = "22222222-0000-4000-8000-000000000001"
TWO = "22222222-0000-4000-8000-000000000002"
ADMIN = Caller("admin", "admins", frozenset({"admin"}))
MINE = Caller("me", "mine", frozenset({"member"}))
PART = DeployableReport(
    name="0000:3b:00.0_R1",
    handles=(HandleReport("0000:3b:00.1", "free"), HandleReport("0000:3b:00.2", "free")),
    rp_uuid=RP,
    region_type="9926ab6d-6c92-5a68-aabc-a7d84c545738",
    region_state="idle",
)
CARD = DeviceReport(
    address="0000:3b:00.0",
    type="FPGA",
    vendor="8086",
    product_id="09c4",
    model="PAC Arria 10 GX",
    driver="simulated",
    health="ok",
    numa_node=0,
    deployables=(PART,),
)
ATTACHED = AttachmentReport(ONE, "mine", RP, PART.name, 0, "0000:3b:00.1")


@pytest.fixture
def engine(kind):
    with migrated_engine("accelerator", kind) as engine:
        yield engine


@pytest.fixture
def service(engine, clock, ids) -> AcceleratorService:
    return AcceleratorService(engine, clock, ids, InProcessHints(Wakeups()))


@on_every_database
def test_a_repeated_report_changes_nothing(service, clock):
    """R6: the same uuids, no duplicates, not even a newer updated_at."""
    service.report_devices("h1", [CARD])
    before = (service.list_devices(None, None, None), service.list_deployables())
    clock.sleep(60)
    service.report_devices("h1", [CARD])
    assert (service.list_devices(None, None, None), service.list_deployables()) == before
    assert len(before[0]) == len(before[1]) == 1


@on_every_database
def test_a_changed_report_updates_the_existing_rows(service, clock):
    service.report_devices("h1", [CARD])
    (before,) = service.list_deployables()
    clock.sleep(1)
    carrying = replace(PART, bitstream_id="image", functions=(Function("f1"), Function(name="aes")))
    service.report_devices("h1", [replace(CARD, deployables=(carrying,))])
    (after,) = service.list_deployables()
    assert (after.uuid, after.bitstream_id) == (before.uuid, "image")
    assert ["function", "f1"] in after.attributes
    assert ["function", "aes"] in after.attributes
    assert after.updated_at == clock.now()
    assert service.list_devices(None, None, None)[0].updated_at is None


@on_every_database
def test_devices_missing_from_a_report_are_deleted_on_that_host_only(service):
    gpu = replace(CARD, address="0000:17:00.0", type="GPU", vendor="10de", deployables=())
    service.report_devices("h1", [CARD, gpu])
    service.report_devices("h2", [CARD])
    service.report_devices("h1", [gpu])
    assert [(d.hostname, d.type) for d in service.list_devices(None, None, None)] == [("h1", "GPU"), ("h2", "FPGA")]
    assert [part.name for part in service.list_deployables()] == ["h2_0000:3b:00.0_R1"]


@on_every_database
def test_devices_are_filtered_by_host_type_and_vendor(service):
    service.report_devices("h1", [CARD])
    service.report_devices(
        "h2", [CARD, replace(CARD, address="0000:17:00.0", type="GPU", vendor="10de", deployables=())]
    )
    assert len(service.list_devices("h2", None, None)) == 2
    assert len(service.list_devices(None, "GPU", "10de")) == 1
    assert service.list_devices("h1", "GPU", None) == []
    (device,) = service.list_devices("h1", None, None)
    assert service.get_device(device.uuid) == device
    with pytest.raises(NotFound):
        service.get_device(ONE)


@on_every_database
def test_an_attached_handle_is_a_bound_request_until_it_is_not_reported(service):
    service.report_attachments("h1", [ATTACHED])
    service.report_attachments("h1", [ATTACHED])
    (row,) = service.requests.list_requests(ADMIN, ONE)
    assert (row.state, row.hostname, row.device_rp_uuid, row.instance_uuid) == ("Bound", "h1", RP, ONE)
    service.report_attachments("h2", [])
    assert service.requests.list_requests(ADMIN, ONE) == [row]
    service.report_attachments("h1", [])
    assert service.requests.list_requests(ADMIN, None) == []


def test_a_handle_that_is_attached_to_another_server_gets_another_request(service):
    service.report_attachments("h1", [ATTACHED])
    (before,) = service.requests.list_requests(ADMIN, None)
    service.report_attachments("h1", [replace(ATTACHED, instance_uuid=TWO)])
    (after,) = service.requests.list_requests(ADMIN, None)
    assert after.uuid != before.uuid
    assert after.instance_uuid == TWO


def test_a_project_sees_its_own_requests_only(service):
    other = replace(ATTACHED, instance_uuid=TWO, project_id="theirs", pci_id="0000:3b:00.2")
    service.report_attachments("h1", [ATTACHED, other])
    assert [row.instance_uuid for row in service.requests.list_requests(MINE, None)] == [ONE]
    assert service.requests.list_requests(MINE, TWO) == []
    theirs = next(row for row in service.requests.list_requests(ADMIN, None) if row.instance_uuid == TWO)
    assert service.requests.get_request(ADMIN, theirs.uuid) == theirs
    with pytest.raises(NotFound):
        service.requests.get_request(MINE, theirs.uuid)


def test_a_report_with_an_invalid_pci_address_is_refused_completely(service):
    with pytest.raises(Invalid):
        service.report_attachments("h1", [ATTACHED, replace(ATTACHED, pci_id="nonsense")])
    assert service.requests.list_requests(ADMIN, None) == []


@on_every_database
def test_profiles_are_found_by_name_and_by_uuid(service):
    made = service.create_profile(NewProfile("fp1", [{"resources:FPGA": "1"}], "one FPGA"))
    assert (
        service.get_profile("fp1") == service.get_profile(made.uuid) == service.get_profile(made.uuid.upper()) == made
    )
    service.create_profile(NewProfile("fp2", [{"resources:FPGA": "2"}], uuid=TWO))
    assert [one.name for one in service.list_profiles([])] == ["fp1", "fp2"]
    assert [one.uuid for one in service.list_profiles(["fp2", "nobody"])] == [TWO]


@on_every_database
def test_a_second_profile_with_the_same_name_or_uuid_is_refused(service):
    service.create_profile(NewProfile("fp1", [{"resources:FPGA": "1"}], uuid=ONE))
    for new in (NewProfile("fp1", [{"resources:FPGA": "1"}]), NewProfile("fp2", [{"resources:FPGA": "1"}], uuid=ONE)):
        with pytest.raises(Conflict, match="already exists"):
            service.create_profile(new)


@on_every_database
def test_several_profiles_are_deleted_together_or_not_at_all(service):
    for name in ("fp1", "fp2"):
        service.create_profile(NewProfile(name, [{"resources:FPGA": "1"}]))
    with pytest.raises(NotFound):
        service.delete_profiles(["fp1", "nobody"])
    assert len(service.list_profiles([])) == 2
    service.delete_profiles(["fp1", "fp2"])
    assert service.list_profiles([]) == []


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        (NewProfile("a b", [{"resources:FPGA": "1"}]), "name"),
        (NewProfile("x", []), "at least one group"),
        (NewProfile("x", [{}]), "needs resources"),
        (NewProfile("x", [{"trait:CUSTOM_X": "required"}]), "needs resources"),
        (NewProfile("x", [{"resources:FPGA": "-1"}]), "whole number"),
        (NewProfile("x", [{"resources:DISK_GB": "1"}]), "DISK_GB"),
        (NewProfile("x", [{"resources:FPGA": "1", "trait:HW_CPU": "required"}]), "CUSTOM_"),
        (NewProfile("x", [{"resources:FPGA": "1", "trait:CUSTOM_X": "maybe"}]), "required or forbidden"),
        (NewProfile("x", [{"resources:FPGA": "1", "color": "red"}]), "must begin with"),
        (NewProfile("x", [{"resources:FPGA": "1"}], uuid="x"), "UUID"),
    ],
)
def test_an_invalid_profile_is_refused_with_the_reason(service, profile, words):
    with pytest.raises(Invalid, match=words):
        service.create_profile(profile)


def test_a_profile_may_use_the_traits_and_keys_that_cyborg_allows(service):
    """A14: OWNER_CYBORG is accepted besides CUSTOM_*; unknown accel: keys are as well."""
    group = {"resources:CUSTOM_ACCELERATOR_FPGA": "1", "trait:OWNER_CYBORG": "required", "accel:anything": "x"}
    assert service.create_profile(NewProfile("x", [group])).groups == [group]


@on_every_database
def test_concurrent_requests_together_do_not_exceed_the_quota(engine, clock, ids):
    """Without a lock, no transaction would count the uncommitted requests of the others."""
    service = AcceleratorService(engine, clock, ids, InProcessHints(Wakeups()), quota_requests=5)
    for name in ("one", "two"):
        service.create_profile(NewProfile(name, [{"resources:FPGA": "2"}]))
    together = threading.Barrier(6)

    def ask(name):
        together.wait()
        for _ in range(3):
            with suppress(OverQuota, Unavailable):
                service.requests.create_requests(MINE, name)

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("one", "two") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(service.requests.list_requests(MINE, None)) == 4
    with pytest.raises(OverQuota, match="project mine has 4 of the 5 allowed requests, and needs 2 more; delete some"):
        service.requests.create_requests(MINE, "one")
    service.requests.create_requests(replace(MINE, project_id="theirs"), "one")
