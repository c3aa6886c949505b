"""Actions on servers: the host's job, the effect of its report, and the allowed callers."""

import pytest


@pytest.fixture
def server_id(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    return server_id


def status(plane, server_id):
    server = plane.show(server_id)
    return server["status"], server["OS-EXT-STS:task_state"], server["OS-EXT-STS:power_state"]


@pytest.mark.parametrize(
    ("prepare", "action", "argument", "meanwhile", "after"),
    [
        ([], "os-stop", None, ("ACTIVE", "powering-off"), ("SHUTOFF", None, 4)),
        (["os-stop"], "os-start", None, ("SHUTOFF", "powering-on"), ("ACTIVE", None, 1)),
        ([], "pause", None, ("ACTIVE", "pausing"), ("PAUSED", None, 3)),
        (["pause"], "unpause", None, ("PAUSED", "unpausing"), ("ACTIVE", None, 1)),
        ([], "reboot", {"type": "SOFT"}, ("REBOOT", "rebooting"), ("ACTIVE", None, 1)),
        (["os-stop"], "reboot", {"type": "HARD"}, ("SHUTOFF", "rebooting_hard"), ("ACTIVE", None, 1)),
    ],
)
def test_an_action_is_carried_out_by_the_host_and_changes_the_status(
    plane, host, server_id, prepare, action, argument, meanwhile, after
):
    for earlier in prepare:
        plane.act(server_id, earlier)
        host.work()
    assert plane.act(server_id, action, argument)[0] == 202
    assert status(plane, server_id)[:2] == meanwhile
    host.work()
    assert status(plane, server_id) == after


@pytest.mark.parametrize("actions", [["os-stop", "os-start"], ["pause", "unpause"], ["lock", "unlock"]])
def test_an_action_keeps_the_servers_allocation_and_devices(plane, host, server_id, actions):
    """R35, R36, R38, A4 (accelerator-attach): stop, pause, lock and their opposites keep attached devices."""
    held = plane.placement.allocations(server_id)
    for action in actions:
        assert plane.act(server_id, action)[0] == 202
        host.work()
        assert plane.placement.allocations(server_id) == held
    assert len(host.built) == 1


@pytest.mark.parametrize("kind", ["SOFT", "HARD"])
def test_a_reboot_keeps_the_servers_allocation_and_devices(plane, host, server_id, kind):
    """R42 (accelerator-attach): a reboot leaves accelerators intact."""
    held = plane.placement.allocations(server_id)
    plane.act(server_id, "reboot", {"type": kind})
    assert host.claim()[0].kind == {"SOFT": "reboot", "HARD": "reboot-hard"}[kind]
    assert plane.placement.allocations(server_id) == held


def test_an_action_in_the_wrong_state_is_a_conflict_with_novas_message(plane, host, server_id):
    status_code, _, document = plane.act(server_id, "os-start")
    message = f"Cannot 'start' instance {server_id} while it is in vm_state active"
    assert (status_code, document) == (409, {"conflictingRequest": {"code": 409, "message": message}})


def test_an_action_that_the_host_cannot_do_leaves_the_server_unchanged(plane, host, server_id):
    host.fails["pause"] = "the hypervisor is busy"
    plane.act(server_id, "pause")
    host.work()
    assert status(plane, server_id) == ("ACTIVE", None, 1)
    newest = plane.send("GET", f"/v2.1/servers/{server_id}/os-instance-actions")[2]["instanceActions"][0]
    assert (newest["action"], newest["message"]) == ("pause", "Error")
    path = f"/v2.1/servers/{server_id}/os-instance-actions/{newest['request_id']}"
    event = plane.send("GET", path)[2]["instanceAction"]["events"][0]
    assert (event["event"], event["result"]) == ("compute_pause_instance", "Error")
    assert event["details"] == "the hypervisor is busy"
    assert "host" not in event
    assert plane.admin("GET", path)[2]["instanceAction"]["events"][0]["host"] == "compute-1"


def test_administrators_may_act_on_a_server_locked_by_its_owner(plane, host, server_id):
    plane.act(server_id, "lock", {"locked_reason": "do not touch"})
    shown = plane.send("GET", f"/v2.1/servers/{server_id}")[2]["server"]
    assert (shown["locked"], shown["locked_reason"]) == (True, "do not touch")
    assert plane.act(server_id, "os-stop")[0] == 409
    assert plane.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 409
    assert plane.send("POST", f"/v2.1/servers/{server_id}/metadata", {"metadata": {"a": "b"}})[0] == 409
    assert plane.act(server_id, "os-stop", who="root:admin", roles="admin")[0] == 202
    assert plane.act(server_id, "unlock")[0] == 202
    assert plane.send("GET", f"/v2.1/servers/{server_id}")[2]["server"]["locked"] is False


def test_an_owner_cannot_unlock_a_server_locked_by_an_administrator(plane, host, server_id):
    plane.act(server_id, "lock", who="root:admin", roles="admin")
    assert plane.act(server_id, "lock")[0] == 202
    assert plane.act(server_id, "unlock")[0] == 403
    assert plane.act(server_id, "unlock", who="root:admin", roles="admin")[0] == 202


def test_the_console_output_is_the_hosts_last_report(plane, host, server_id):
    assert plane.act(server_id, "os-getConsoleOutput", {})[2] == {"output": "vm: build\n"}
    plane.act(server_id, "reboot", {"type": "SOFT"})
    host.work()
    # As in Nova, the text after the last line break counts as a line, too.
    assert plane.act(server_id, "os-getConsoleOutput", {"length": 2})[2] == {"output": "vm: reboot\n"}
    assert plane.act(server_id, "os-getConsoleOutput", {"length": 0})[2] == {"output": ""}


def test_only_the_end_of_a_long_console_is_kept(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    job = host.claim()[0]
    long = "x" * 100_000 + "end"
    plane.agent.report_job(job.id, job.epoch, "done", {"console": long, "devices": []})
    text = plane.act(server_id, "os-getConsoleOutput", {})[2]["output"]
    assert (len(text), text[-3:]) == (64 * 1024, "end")


def test_a_server_without_a_host_has_no_console_output(plane):
    server_id = plane.boot(plane.flavor("small"))
    assert plane.act(server_id, "os-getConsoleOutput", {})[0] == 409


def test_only_administrators_may_reset_the_state_and_it_works_at_once(plane, host, server_id):
    assert plane.act(server_id, "os-resetState", {"state": "error"})[0] == 403
    assert plane.act(server_id, "os-resetState", {"state": "error"}, who="root:admin", roles="admin")[0] == 202
    assert status(plane, server_id)[:2] == ("ERROR", None)
    plane.act(server_id, "os-resetState", {"state": "active"}, who="root:admin", roles="admin")
    assert status(plane, server_id)[:2] == ("ACTIVE", None)


def test_force_delete_deletes_the_server(plane, host, server_id):
    assert plane.act(server_id, "forceDelete")[0] == 202
    plane.settle(host)
    assert plane.show(server_id) is None


def test_a_body_without_exactly_one_known_action_is_refused(plane, host, server_id):
    def refusal(body):
        status_code, _, document = plane.send("POST", f"/v2.1/servers/{server_id}/action", body)
        return status_code, next(iter(document.values()))["message"]

    assert refusal({"nope": None}) == (400, "There is no such action: nope")
    assert refusal({"os-stop": None, "pause": None}) == (400, "Malformed request body")
    refused = (501, "The action injectNetworkInfo is not offered by this service.")
    assert refusal({"injectNetworkInfo": None}) == refused
    gone = (410, "Nova removed the action resetNetwork; it has no replacement here.")
    assert refusal({"resetNetwork": None}) == gone
    assert refusal({"reboot": {"type": "MEDIUM"}})[0] == 400
    assert refusal({"reboot": None})[0] == 400


def test_metadata_of_a_server_is_set_shown_and_deleted(plane, host, server_id):
    path = f"/v2.1/servers/{server_id}/metadata"
    assert plane.send("POST", path, {"metadata": {"a": "1", "b": "2"}})[2] == {"metadata": {"a": "1", "b": "2"}}
    assert plane.send("PUT", f"{path}/a", {"meta": {"a": "3"}})[2] == {"meta": {"a": "3"}}
    assert plane.send("GET", f"{path}/a")[2] == {"meta": {"a": "3"}}
    assert plane.send("DELETE", f"{path}/b")[0] == 204
    assert plane.send("DELETE", f"{path}/b")[0] == 404
    assert plane.send("PUT", path, {"metadata": {"c": "4"}})[2] == {"metadata": {"c": "4"}}
    assert plane.send("GET", path)[2] == {"metadata": {"c": "4"}}
    many = {f"k{number}": "v" for number in range(129)}
    assert plane.send("POST", path, {"metadata": many})[0] == 403


def test_a_server_can_be_renamed_and_described(plane, host, server_id):
    body = {"server": {"name": "new", "description": "what it is for"}}
    server = plane.send("PUT", f"/v2.1/servers/{server_id}", body)[2]["server"]
    assert (server["name"], server["description"]) == ("new", "what it is for")
