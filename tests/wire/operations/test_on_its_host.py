"""Operations on a server that stays on its host, from the request to the hypervisor and back."""

import pytest

from tests.wire.operations.conftest import GPU

HELD = {"compute-1": {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10, GPU: 1}}


@pytest.fixture
def host(cloud):
    return cloud.hosts["compute-1"]


@pytest.fixture
def server_id(cloud):
    return cloud.boot("gpu")


def devices(cloud, host, server_id):
    """The devices in the definition and those of the accelerator agent, which must be equal."""
    defined = list(host.driver.domains()[server_id].spec.pci_addresses)
    assert host.plugged[server_id] == defined
    return defined


#: (actions before it, action, argument, code, (status, power on the host) afterwards, event)
OPERATIONS = [
    ([], "suspend", None, 202, ("SUSPENDED", "suspended"), "compute_suspend_instance"),
    (["suspend"], "resume", None, 202, ("ACTIVE", "running"), "compute_resume_instance"),
    (["suspend"], "reboot", {"type": "HARD"}, 202, ("ACTIVE", "running"), "compute_reboot_instance"),
    ([], "rescue", None, 200, ("RESCUE", "running"), "compute_rescue_instance"),
    (["os-stop"], "rescue", {"adminPass": "secret"}, 200, ("RESCUE", "running"), "compute_rescue_instance"),
    (["rescue"], "unrescue", None, 202, ("ACTIVE", "running"), "compute_unrescue_instance"),
    ([], "changePassword", {"adminPass": "secret"}, 202, ("ACTIVE", "running"), "compute_set_admin_password"),
    ([], "trigger_crash_dump", None, 202, ("ACTIVE", "running"), "compute_trigger_crash_dump"),
    (["rescue"], "trigger_crash_dump", None, 202, ("RESCUE", "running"), "compute_trigger_crash_dump"),
    ([], "createImage", {"name": "copy"}, 202, ("ACTIVE", "running"), "compute_snapshot_instance"),
    (["suspend"], "createImage", {"name": "copy"}, 202, ("SUSPENDED", "suspended"), "compute_snapshot_instance"),
    (["os-stop"], "os-start", None, 202, ("ACTIVE", "running"), "compute_start_instance"),
]


@pytest.mark.parametrize(("before", "action", "argument", "code", "after", "event"), OPERATIONS)
def test_an_action_is_carried_out_by_the_host_and_keeps_the_accelerators(
    cloud, host, server_id, before, action, argument, code, after, event
):
    """R35, R36, R37, R42, R47, R48, R51, A6 (accelerator-attach): the same devices are attached and allocated before
    and after.
    """
    had = devices(cloud, host, server_id)
    for earlier in before:
        cloud.do(server_id, earlier)
    status, _ = cloud.act(server_id, action, argument)
    cloud.settle()
    assert status == code
    assert (cloud.status(server_id)[:2], host.servers[server_id]) == ((after[0], None), after[1])
    assert devices(cloud, host, server_id) == had
    assert cloud.held(server_id) == HELD
    assert cloud.actions(server_id)[0][1] == {event: "Success"}


@pytest.mark.parametrize(
    ("action", "argument", "seen"),
    [
        ("changePassword", {"adminPass": "secret"}, "the administrator has a new password"),
        ("trigger_crash_dump", None, "Kernel panic - not syncing: NMI"),
    ],
)
def test_a_new_password_and_a_crash_dump_reach_the_guest(cloud, host, server_id, action, argument, seen):
    """R47, R48 (accelerator-attach): nothing else of the server shows whether the host did it."""
    before = host.driver.console(server_id)
    cloud.do(server_id, action, argument)
    assert seen in host.driver.console(server_id).removeprefix(before)


@pytest.mark.parametrize(
    ("before", "status", "power"), [([], "ACTIVE", "running"), (["os-stop"], "SHUTOFF", "shutoff")]
)
def test_a_rebuild_creates_a_new_disk_and_keeps_the_status(cloud, host, server_id, before, status, power):
    """R43 (accelerator-attach): devices stay attached while the image is replaced."""
    had = devices(cloud, host, server_id)
    host.write(server_id, "precious")
    for action in before:
        cloud.do(server_id, action)
    other = cloud.make_image("other")
    body = {"imageRef": other, "name": "new", "metadata": {"a": "b"}, "adminPass": "x"}
    code, answer = cloud.act(server_id, "rebuild", body)
    assert (code, answer["server"]["status"], answer["server"]["adminPass"]) == (202, "REBUILD", "x")
    cloud.settle()
    server = cloud.show(server_id)
    assert (server["status"], server["name"], server["image"]["id"], server["metadata"]) == (
        status, "new", other, {"a": "b"},
    )  # fmt: skip
    assert host.servers[server_id] == power
    assert host.disk(server_id).startswith(f"image {other}")
    assert "precious" not in host.disk(server_id)
    assert devices(cloud, host, server_id) == had


def test_a_failed_rebuild_ends_in_error_with_the_reason(cloud, host, server_id):
    host.faults.fail("rebuild", "no space left on the disk")
    cloud.do(server_id, "rebuild", {"imageRef": cloud.image})
    server = cloud.show(server_id)
    assert (server["status"], server["fault"]["message"]) == ("ERROR", "no space left on the disk")
    cloud.do(server_id, "rebuild", {"imageRef": cloud.image})
    assert cloud.status(server_id)[0] == "ACTIVE"


def test_a_missing_image_is_refused_for_rebuild_and_rescue(cloud, server_id):
    missing = cloud.ids.uuid()
    assert cloud.act(server_id, "rebuild", {"imageRef": missing})[0] == 400
    assert cloud.act(server_id, "rescue", {"rescue_image_ref": missing})[0] == 400
    assert cloud.status(server_id)[0] == "ACTIVE"


def test_rescue_boots_the_named_image_and_returns_a_password(cloud, host, server_id):
    rescue = cloud.make_image("rescue")
    assert cloud.do(server_id, "rescue", {"rescue_image_ref": rescue, "adminPass": "secret"}) == {"adminPass": "secret"}
    assert f"rescue system {rescue}" in host.driver.console(server_id)
    cloud.do(server_id, "unrescue")
    assert len(cloud.do(server_id, "rescue")["adminPass"]) == 12


def test_a_password_is_not_stored(cloud, server_id):
    cloud.do(server_id, "changePassword", {"adminPass": "hunter2"})
    cloud.do(server_id, "rescue", {"adminPass": "hunter3"})
    with cloud.engine.connect() as connection:
        kept = str(connection.exec_driver_sql("SELECT payload, result FROM jobs").all())
    assert "hunter" not in kept


def test_an_action_that_the_hypervisor_does_not_support_is_refused_at_once(cloud, host, server_id, monkeypatch):
    facts = host.driver.facts()
    monkeypatch.setattr(host.driver, "facts", lambda: type(facts)(**{**vars(facts), "capabilities": frozenset()}))
    cloud.run_for(30)  # a heartbeat reports the capabilities
    for action, argument in (
        ("trigger_crash_dump", None), ("suspend", None), ("rescue", None), ("createImage", {"name": "x"}),
        ("changePassword", {"adminPass": "x"}),
    ):  # fmt: skip
        code, body = cloud.act(server_id, action, argument)
        assert (code, body["badRequest"]["message"]) == (
            400, f"The hypervisor of instance {server_id} does not support '{action}'.",
        )  # fmt: skip
    assert cloud.status(server_id)[:2] == ("ACTIVE", None)


def test_actions_need_their_microversion_and_role(cloud, server_id):
    assert cloud.act(server_id, "trigger_crash_dump", version="2.16")[0] == 404
    for action in ("suspend", "rescue", "unrescue", "trigger_crash_dump", "restore"):
        assert cloud.act(server_id, action, roles="reader")[0] == 403
        assert cloud.act(server_id, action, who="eve:blue")[0] == 404


# ----------------------------------------------------------------------------- images of its disk


def test_a_snapshot_is_stored_in_the_image_service(cloud, host, server_id):
    """R51 (accelerator-attach): a snapshot keeps devices attached, but does not contain their state."""
    host.write(server_id, "precious")
    code, body = cloud.act(server_id, "createImage", {"name": "copy", "metadata": {"purpose": "test"}})
    image = cloud.image_record(body["image_id"])
    assert (code, image.status, image.name, image.owner) == (202, "queued", "copy", "red")
    assert cloud.status(server_id)[1] == "image_snapshot"
    cloud.settle()
    image = cloud.image_record(body["image_id"])
    assert (image.status, image.visibility) == ("active", "private")
    assert cloud.image_data(image.id).endswith("precious")
    assert image.properties["instance_uuid"] == server_id
    assert (image.properties["image_type"], image.properties["purpose"]) == ("snapshot", "test")


def test_metadata_may_call_a_snapshot_another_type_of_image_but_not_a_backup(cloud, server_id):
    """As in Nova 34, metadata override the type of a snapshot, and `image_type` is no argument of its own.

    Nova lets metadata also override the type of a backup, which its rotation then no longer finds, and the server.
    """
    labelled = {"image_type": "golden", "instance_uuid": "another"}
    code, body = cloud.act(server_id, "createImage", {"name": "copy", "metadata": labelled})
    assert code == 202
    cloud.settle()
    properties = cloud.image_record(body["image_id"]).properties
    assert (properties["image_type"], properties["instance_uuid"]) == ("golden", server_id)
    backup = {"name": "nightly", "backup_type": "daily", "rotation": 1, "metadata": {"image_type": "golden"}}
    code, body = cloud.act(server_id, "createBackup", backup)
    assert code == 202
    cloud.settle()
    properties = cloud.image_record(body["image_id"]).properties
    assert (properties["image_type"], properties["backup_type"]) == ("backup", "daily")
    code, body = cloud.act(server_id, "createImage", {"name": "copy", "image_type": "golden"})
    assert (code, "image_type" in body["badRequest"]["message"]) == (400, True)


def test_a_failed_snapshot_leaves_no_queued_image(cloud, host, server_id):
    host.driver.faults.fail("snapshot", "the disk could not be copied")
    image_id = cloud.act(server_id, "createImage", {"name": "copy"})[1]["image_id"]
    assert cloud.image_record(image_id).status == "queued"
    cloud.settle()
    assert cloud.image_record(image_id) is None
    assert cloud.status(server_id)[:2] == ("ACTIVE", None)


def test_before_2_45_the_image_is_returned_as_a_location(cloud, server_id):
    path = f"/v2.1/servers/{server_id}/action"
    code, body, headers = cloud.send("POST", path, {"createImage": {"name": "copy"}}, version="2.44")
    assert (code, body) == (202, b"")
    assert cloud.image_record(headers["location"].rpartition("/")[2]) is not None


def test_a_snapshot_of_a_locked_server_is_allowed(cloud, server_id):
    cloud.do(server_id, "lock")
    assert cloud.act(server_id, "suspend")[0] == 409
    assert cloud.act(server_id, "createImage", {"name": "copy"})[0] == 202


def test_a_failed_snapshot_leaves_the_server_unchanged(cloud, host, server_id):
    host.faults.fail("snapshot", "no space left for it")
    cloud.do(server_id, "createImage", {"name": "copy"})
    assert cloud.status(server_id)[:2] == ("ACTIVE", None)
    assert cloud.actions(server_id)[0] == ("createImage", {"compute_snapshot_instance": "Error"})


def test_only_the_newest_backups_are_kept(cloud, server_id):
    made = []
    for number in range(4):
        wanted = {"name": f"b{number}", "backup_type": "daily", "rotation": 2}
        made.append(cloud.do(server_id, "createBackup", wanted)["image_id"])
        cloud.clock.sleep(3600)
        cloud.run_for(1)
    weekly = cloud.do(server_id, "createBackup", {"name": "w", "backup_type": "weekly", "rotation": 1})["image_id"]
    kept = [image_id for image_id in [*made, weekly] if cloud.image_record(image_id) is not None]
    assert kept == [*made[2:], weekly]


def test_a_server_from_a_snapshot_gets_a_clean_device(cloud, host, server_id):
    """R49 (accelerator-attach): an ordinary creation; refused only if the image relies on the device's state."""
    image_id = cloud.do(server_id, "createImage", {"name": "copy"})["image_id"]
    again = cloud.boot("gpu", imageRef=image_id)
    assert cloud.status(again)[0] == "ACTIVE"
    assert host.plugged[again] != host.plugged[server_id]
    demanding = cloud.do(server_id, "createImage", {"name": "copy", "metadata": {"accel:saved_state": "required"}})[
        "image_id"
    ]
    body = {"name": "x", "imageRef": demanding, "flavorRef": "gpu", "networks": "none"}
    code, answer, _ = cloud.send("POST", "/v2.1/servers", {"server": body})
    assert code == 400
    assert "a server gets a clean one" in answer["badRequest"]["message"]


# ------------------------------------------------------------------- stop may release (A4 by option)


def test_with_an_option_stop_releases_devices_and_start_attaches_them_again(cloud, host):
    """R35, A4 (accelerator-attach): released on the host, still allocated in Placement, attached again at the start."""
    host.start(accelerators_on_stop="release")
    server_id = cloud.boot("gpu")
    cloud.do(server_id, "os-stop")
    assert host.plugged == {}
    assert cloud.held(server_id) == HELD
    cloud.do(server_id, "os-start")
    assert len(devices(cloud, host, server_id)) == 1
    assert host.servers[server_id] == "running"
