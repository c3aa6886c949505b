"""Each operation in each state, over the API: it is accepted as in the table, or is a conflict and changes nothing.

The table was measured on Nova (reference/compute.md 4.3); tests/unit/compute/test_lifecycle.py compares it with
`lifecycle.OPERATIONS`, cell by cell.
"""

import pytest

from moorage.compute.model import lifecycle
from moorage.compute.model.servers import TaskState, VmState
from tests.unit.compute.test_lifecycle import ALLOWED

ONE, TWO = "compute-1", "compute-2"
IMAGE = object()

#: (operation, action, argument). Moves are last, because they need a cleanup.
ACTIONS = [
    (lifecycle.START, "os-start", None),
    (lifecycle.STOP, "os-stop", None),
    (lifecycle.PAUSE, "pause", None),
    (lifecycle.UNPAUSE, "unpause", None),
    (lifecycle.SUSPEND, "suspend", None),
    (lifecycle.RESUME, "resume", None),
    (lifecycle.REBOOT, "reboot", {"type": "SOFT"}),
    (lifecycle.REBOOT_HARD, "reboot", {"type": "HARD"}),
    (lifecycle.REBUILD, "rebuild", {"imageRef": IMAGE}),
    (lifecycle.RESCUE, "rescue", None),
    (lifecycle.UNRESCUE, "unrescue", None),
    (lifecycle.CHANGE_PASSWORD, "changePassword", {"adminPass": "x"}),
    (lifecycle.CRASH_DUMP, "trigger_crash_dump", None),
    (lifecycle.SNAPSHOT, "createImage", {"name": "copy"}),
    (lifecycle.BACKUP, "createBackup", {"name": "copy", "backup_type": "daily", "rotation": 1}),
    (lifecycle.SHELVE, "shelve", None),
    (lifecycle.SHELVE_OFFLOAD, "shelveOffload", None),
    (lifecycle.UNSHELVE, "unshelve", None),
    (lifecycle.UNSHELVE_OFFLOADED, "unshelve", None),
    (lifecycle.RESTORE, "restore", None),
    (lifecycle.DELETE, "forceDelete", None),
    (lifecycle.RESIZE, "resize", {"flavorRef": "tall"}),
    (lifecycle.MIGRATE, "migrate", None),
    (lifecycle.LIVE_MIGRATE, "os-migrateLive", {"host": None, "block_migration": "auto"}),
    (lifecycle.EVACUATE, "evacuate", {}),
    (lifecycle.CONFIRM_RESIZE, "confirmResize", None),
    (lifecycle.REVERT_RESIZE, "revertResize", None),
]
#: The same status as of ``DELETE``; Nova answers ``forceDelete`` with 202.
CODES = {lifecycle.DELETE: 202}


def test_every_operation_is_in_the_list_of_this_test():
    interfaces = {lifecycle.ATTACH_INTERFACE, lifecycle.DETACH_INTERFACE}  # see wire/compute/test_interfaces.py
    others = {lifecycle.CREATE, lifecycle.SOFT_DELETE} | interfaces  # they have requests of their own
    assert {operation for operation, _, _ in ACTIONS} == set(lifecycle.OPERATIONS) - others == set(ALLOWED) - interfaces


@pytest.fixture
def cloud(make_cloud):
    cloud = make_cloud(2)
    cloud.flavor("tall", disk=20)
    cloud.server_id = cloud.boot()
    cloud.home = cloud.status(cloud.server_id)[2]
    return cloud


def put(cloud, state, *, task=None, locked=None, is_down=False):
    """Brings the server into this state without an operation in progress."""
    is_off = state is VmState.SHELVED_OFFLOADED
    with cloud.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM jobs")
        connection.exec_driver_sql("DELETE FROM moves")
        connection.exec_driver_sql(
            "UPDATE servers SET vm_state = ?, task_state = ?, locked_by = ?, host = ?, parked_image_id = ?",
            (state, task, locked, None if is_off else cloud.home, cloud.image if is_off else None),
        )
        connection.exec_driver_sql("UPDATE hosts SET forced_down = ? WHERE name = ?", (is_down, cloud.home))


def stored(cloud):
    with cloud.engine.connect() as connection:
        jobs = connection.exec_driver_sql("SELECT count(*) FROM jobs").scalar()
        return connection.exec_driver_sql("SELECT vm_state, task_state FROM servers").one(), jobs


def asked(cloud, action, argument, **who):
    if isinstance(argument, dict):
        argument = {name: cloud.image if value is IMAGE else value for name, value in argument.items()}
    return cloud.act(cloud.server_id, action, argument, **({"who": "root:admin", "roles": "admin"} | who))


def allowed(operation, action, state):
    """Whether the state allows it, also by another operation with the same request."""
    same = [other for other, name, _ in ACTIONS if name == action and action == "unshelve"] or [operation]
    return next((one for one in same if state.value in ALLOWED[one]), None)


@pytest.mark.parametrize("state", [state for state in VmState if state is not VmState.DELETED])
def test_an_operation_is_accepted_in_its_allowed_states_and_a_conflict_in_all_others(cloud, state):
    """Issue 4: "Every operation of the table in the reference: allowed states, results, 409 otherwise"."""
    for operation, action, argument in ACTIONS:
        put(cloud, state, is_down=operation is lifecycle.EVACUATE)
        begins = allowed(operation, action, state)
        if begins in (lifecycle.CONFIRM_RESIZE, lifecycle.REVERT_RESIZE):
            continue  # the next test covers states with a move
        code, body = asked(cloud, action, argument)
        (vm_state, task), jobs = stored(cloud)
        if begins is not None:
            assert (action, code) == (action, CODES.get(begins, begins.code))
            if begins is not lifecycle.DELETE or state is not VmState.SHELVED_OFFLOADED:
                assert (vm_state, task, jobs > 0) == (state, begins.task, True)
            continue
        reason = f"Cannot '{operation.name}' instance {cloud.server_id} while it is in vm_state {state}"
        assert (action, code, body["conflictingRequest"]["message"]) == (action, 409, reason)
        assert (vm_state, task, jobs) == (state, None, 0)
    for always, argument in (("lock", None), ("unlock", None), ("os-resetState", {"state": "error"})):
        put(cloud, state)
        assert (always, asked(cloud, always, argument)[0]) == (always, 202)


@pytest.mark.parametrize(
    ("action", "code", "task"), [("confirmResize", 204, None), ("revertResize", 202, "resize_reverting")]
)
def test_a_resized_server_can_be_confirmed_or_reverted(cloud, action, code, task):
    cloud.admin_do(cloud.server_id, "migrate")
    assert asked(cloud, action, None)[0] == code
    assert stored(cloud)[0] == ("active" if task is None else "resized", task)


def test_a_server_with_an_operation_in_progress_accepts_only_operations_that_tolerate_it(cloud):
    for operation, action, argument in ACTIONS:
        state = VmState(min(ALLOWED[operation]))
        for task in (TaskState.POWERING_OFF, TaskState.REBOOTING_HARD):
            put(cloud, state, task=task, is_down=operation is lifecycle.EVACUATE)
            code, body = asked(cloud, action, argument)
            if task in operation.tolerates:
                assert (action, code) == (action, CODES.get(operation, operation.code))
                continue
            reason = f"Cannot '{operation.name}' instance {cloud.server_id} while it is in task_state {task}"
            assert (action, code, body["conflictingRequest"]["message"]) == (action, 409, reason)
            assert stored(cloud) == ((state, task), 0)


def test_a_locked_server_accepts_only_snapshots_from_its_owner(cloud):
    owner = {"who": "alice:red", "roles": "member"}
    for operation, action, argument in ACTIONS:
        put(cloud, VmState(min(ALLOWED[operation])), locked="owner")
        code, body = asked(cloud, action, argument, **owner)
        if operation in (lifecycle.SNAPSHOT, lifecycle.BACKUP):
            assert (action, code) == (action, 202)
        elif code != 403:  # only administrators may use it, locked or not
            message = body["conflictingRequest"]["message"]
            assert (action, code, message) == (action, 409, f"Instance {cloud.server_id} is locked")
        else:
            assert action in ("shelveOffload", "migrate", "os-migrateLive", "evacuate")
