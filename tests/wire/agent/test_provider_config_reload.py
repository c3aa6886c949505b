"""A running host reloads provider configuration. Spec: docs/evidence/specs/provider-config.md; in virtual time."""

import logging
from datetime import timedelta
from types import SimpleNamespace

import pytest

from moorage.agent.control import HostControl, ProviderConfigReloader, ProviderConfigTask, control_app
from moorage.agent.provider_config.installation import (
    MAX_WAIT_S,
    CurrentConfigSet,
    hold_directory,
    install_files,
    read_contents,
)
from moorage.core.errors import Conflict, StartError, Unavailable
from moorage.core.ids import SeededIds
from moorage.placement.client.placement_client import Candidate, Inventory
from moorage.wire.client import ServiceClient
from moorage.wire.transports import InProcessTransport
from tests.wire.agent.written import LLC, WAYS, put

CONSUMER = "cccccccc-0000-4000-8000-000000000000"
PERIOD_S = 2.0


@pytest.fixture
def running(host, placement, clock):
    """A started host with the file LLC, its reloader, its watch and its API."""
    put(host.files, LLC)
    tracker = host.tracker()
    tracker.start()
    reloader = ProviderConfigReloader(tracker, CurrentConfigSet(host.state / "provider_config.json"), clock)
    reloader.record_start()
    watch = ProviderConfigTask(reloader, host="compute-1", clock=clock, period_s=PERIOD_S)
    control = HostControl("compute-1", tracker, reloader, {CONSUMER: "web-1"}.get)
    transport = InProcessTransport(control_app(control, SeededIds(21)), "http://agent")
    api = ServiceClient(transport, service_type="agent", clock=clock)
    return SimpleNamespace(tracker=tracker, reloader=reloader, watch=watch, api=api, files=host.files, clock=clock)


def run_watch(running, times=1):
    """Runs the watch this many times, each when it is due."""
    for _ in range(times):
        due = running.watch.run_once()
        running.clock.advance_to(due)


def custom(placement):
    root = placement.provider_by_name("compute-1").uuid
    things = {*placement.inventories(root)[1], *placement.traits(root)[1]}
    return {name for name in things if name.startswith("CUSTOM")}


def use(placement, amount):
    root = placement.provider_by_name("compute-1").uuid
    placement.claim(CONSUMER, Candidate({root: {"CUSTOM_LLC": amount}}, {}, root), "project", "user")


def test_a_changed_file_is_applied_when_two_checks_find_it_unchanged(running, placement):
    """At the first check the file may be half written; it is read when it did not change since the last check."""
    run_watch(running, 3)
    put(running.files, WAYS)
    run_watch(running)
    assert custom(placement) == {"CUSTOM_LLC", "CUSTOM_P_STATE_ENABLED"}
    put(running.files, WAYS + "\n")
    run_watch(running)
    assert custom(placement) == {"CUSTOM_LLC", "CUSTOM_P_STATE_ENABLED"}
    run_watch(running)
    assert custom(placement) == {"CUSTOM_WAYS", "CUSTOM_FAST"}


@pytest.mark.parametrize("change", ["add", "remove", "rename", "mode", "replace"])
def test_every_kind_of_change_to_the_files_is_detected(running, placement, change):
    path = running.files / "a.yaml"
    if change == "add":
        put(running.files, WAYS.replace("uuid: $COMPUTE_NODE", "name: compute-1_NUMA_0"), "b.yaml")
    elif change == "remove":
        path.unlink()
    elif change == "rename":
        path.rename(running.files / "b.yaml")
    elif change == "mode":
        path.chmod(0o600)
    else:
        put(running.files, LLC.replace("22", "23"), "new")
        (running.files / "new").rename(path)
    before = running.reloader.checked_stamp
    run_watch(running, 2)
    assert running.reloader.checked_stamp != before
    assert ("CUSTOM_LLC" in custom(placement)) is (change != "remove")


def test_the_watch_sends_no_request_while_nothing_changes(running, transport):
    """R17 (provider-config): the files that the start read are known."""
    transport.requests.clear()
    run_watch(running, 20)
    assert transport.requests == []


def test_an_invalid_file_is_logged_once_and_the_last_valid_configuration_is_kept(running, placement, caplog):
    put(running.files, "nonsense: [")
    with caplog.at_level(logging.ERROR):
        run_watch(running, 6)
    assert len(caplog.records) == 1
    assert "the last accepted one stays in force" in caplog.text
    assert "a.yaml:2:1" in caplog.records[0].why
    assert "a.yaml:2:1" in running.api.get("/v1/provider-config")["refused"]
    running.tracker.update()
    assert custom(placement) == {"CUSTOM_LLC", "CUSTOM_P_STATE_ENABLED"}
    put(running.files, WAYS)
    run_watch(running, 2)
    assert custom(placement) == {"CUSTOM_WAYS", "CUSTOM_FAST"}
    assert running.api.get("/v1/provider-config")["refused"] is None


def test_a_file_that_conflicts_with_the_driver_is_refused(running, placement, caplog):
    running.tracker._driver.update_provider_tree = with_ways(running.tracker._driver.update_provider_tree)
    running.tracker.update()
    put(running.files, WAYS)
    run_watch(running, 2)
    assert "CUSTOM_WAYS of provider compute-1 is managed by the virt driver" in caplog.records[-1].why
    assert custom(placement) == {"CUSTOM_LLC", "CUSTOM_P_STATE_ENABLED", "CUSTOM_WAYS"}
    assert [config.inventories.keys() for config in running.tracker.configs] == [{"CUSTOM_LLC"}]


def with_ways(update):
    def updated(tree):
        tree = update(tree)
        root = tree["compute-1"]
        from dataclasses import replace

        from moorage.core.inventories import Inventory as Wanted

        return tree.with_node(replace(root, inventories={**root.inventories, "CUSTOM_WAYS": Wanted(1)}))

    return updated


def test_a_changed_file_is_applied_when_placement_is_available_again(running, placement, transport):
    def away(request, send):
        raise Unavailable("placement does not answer")

    put(running.files, WAYS)
    transport.around = away
    run_watch(running, 5)
    assert [config.inventories.keys() for config in running.tracker.configs] == [{"CUSTOM_LLC"}]
    transport.clear()
    run_watch(running)
    assert custom(placement) == {"CUSTOM_WAYS", "CUSTOM_FAST"}


def test_a_requested_reload_applies_a_change_at_once(running, placement):
    """SIGHUP: the files are read without a check before."""
    put(running.files, WAYS)
    running.watch.request_reload()
    running.watch.run_once()
    assert custom(placement) == {"CUSTOM_WAYS", "CUSTOM_FAST"}


def test_without_a_period_files_are_read_only_on_request(running, placement, clock):
    watch = ProviderConfigTask(running.reloader, host="compute-1", clock=clock, period_s=0)
    put(running.files, WAYS)
    assert [watch.run_once() for _ in range(3)] == [None] * 3
    assert "CUSTOM_LLC" in custom(placement)
    watch.request_reload()
    assert watch.run_once() is None
    assert "CUSTOM_WAYS" in custom(placement)


def test_files_that_are_replaced_together_are_read_together(running, placement, clock):
    """The writer locks the directory; the agent waits for it for a limited time."""
    with hold_directory(running.files):
        install_files(running.files, {"b.yaml": WAYS.encode()})
        begin = clock.now()
        running.reloader.reload()
        assert timedelta(seconds=MAX_WAIT_S * 0.9) < clock.now() - begin < timedelta(seconds=MAX_WAIT_S * 1.1)
    begin = clock.now()
    running.reloader.reload()
    assert clock.now() == begin
    assert read_contents(running.files) == {"b.yaml": WAYS.encode()}


def test_a_plan_shows_the_changes_and_changes_nothing(running, placement, transport):
    use(placement, 4)
    transport.requests.clear()
    outcome = running.api.request("POST", "/v1/provider-config/plan", json={"files": {"a.yaml": WAYS}})
    assert transport.writes == []
    (provider,) = outcome["providers"]
    assert provider["name"] == "compute-1"
    assert [(change["name"], change["how"]) for change in provider["classes"]] == [
        ("CUSTOM_LLC", "close"),
        ("CUSTOM_WAYS", "add"),
    ]
    closed = provider["classes"][0]
    assert (closed["used"], closed["users"]) == (4, [{"consumer": CONSUMER, "server": "web-1", "amount": 4}])
    assert (provider["traits_added"], provider["traits_removed"]) == (["CUSTOM_FAST"], ["CUSTOM_P_STATE_ENABLED"])
    assert "4 are in use" in outcome["warnings"][0]
    assert custom(placement) == {"CUSTOM_LLC", "CUSTOM_P_STATE_ENABLED"}


def test_a_plan_that_shrinks_a_used_class_lists_its_users(running, placement):
    use(placement, 11)
    smaller = LLC.replace("total: 22", "total: 12")
    outcome = running.api.request("POST", "/v1/provider-config/plan", json={"files": {"a.yaml": smaller}})
    (change,) = outcome["providers"][0]["classes"]
    assert (change["how"], change["used"]) == ("change", 11)
    assert change["users"][0]["server"] == "web-1"


def test_apply_makes_the_planned_changes_and_a_second_one_none(running, placement):
    put(running.files, WAYS)
    plan = running.api.request("POST", "/v1/provider-config/plan", json={"files": {"a.yaml": WAYS}})
    assert running.api.request("POST", "/v1/provider-config/apply", json={}) == plan
    again = running.api.request("POST", "/v1/provider-config/apply", json={})
    assert again["providers"] == []


@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_an_invalid_file_is_answered_with_the_position_and_the_remedy(running, verb):
    put(running.files, WAYS.replace("CUSTOM_WAYS", "VCPU"))
    body = {"files": {"a.yaml": WAYS.replace("CUSTOM_WAYS", "VCPU")}} if verb == "plan" else {}
    answer = running.api.request_raw("POST", f"/v1/provider-config/{verb}", json=body, accept=(409,))
    assert answer.status == 409
    assert b"a.yaml:5:32: " in answer.body
    assert b"only custom classes" in answer.body


def test_the_current_and_the_previous_files_are_stored(running, host, clock):
    """R17 (provider-config)"""
    state = running.api.get("/v1/provider-config")
    assert state["in_force"]["files"] == {"a.yaml": LLC}
    assert state["before"] is None
    put(running.files, WAYS)
    running.reloader.reload()
    running.reloader.reload()
    found = CurrentConfigSet(host.state / "provider_config.json")
    assert found.in_force.files == {"a.yaml": WAYS}
    assert found.before.files == {"a.yaml": LLC}


def test_a_change_that_was_applied_by_a_restart_can_be_undone(running, host, clock):
    put(host.files, WAYS)
    tracker = host.tracker()
    tracker.start()
    reloader = ProviderConfigReloader(tracker, CurrentConfigSet(host.state / "provider_config.json"), clock)
    reloader.record_start()
    assert reloader.current.before.files == {"a.yaml": LLC}


def test_a_stored_configuration_that_is_unreadable_stops_the_start_with_a_remedy(tmp_path):
    path = tmp_path / "provider_config.json"
    path.write_text('{"version": 1')
    with pytest.raises(StartError, match="restore it, or remove it"):
        CurrentConfigSet(path)


def test_an_apply_interrupted_by_placement_keeps_the_old_files_and_is_completed_later(running, placement, transport):
    put(running.files, WAYS)
    writes = []

    def die(request, send):
        if request.method != "GET":
            writes.append(request.path)
            if len(writes) > 2:
                raise Unavailable("placement does not answer")
        return send()

    transport.around = die
    with pytest.raises(Unavailable):
        running.reloader.reload()
    transport.clear()
    running.tracker.update()
    assert custom(placement) == {"CUSTOM_LLC", "CUSTOM_P_STATE_ENABLED"}
    root = placement.provider_by_name("compute-1").uuid
    assert placement.inventories(root)[1]["CUSTOM_LLC"] == Inventory(22, 2, max_unit=11)


def test_a_plan_succeeds_although_compute_cannot_name_the_users(running, placement):
    def away(uuid):
        raise Conflict("compute is away")

    use(placement, 1)
    control = HostControl("compute-1", running.tracker, running.reloader, away)
    api = ServiceClient(InProcessTransport(control_app(control, SeededIds(22)), "http://agent"), service_type="agent")
    outcome = api.request("POST", "/v1/provider-config/plan", json={"files": {}})
    (change,) = [one for one in outcome["providers"][0]["classes"] if one["name"] == "CUSTOM_LLC"]
    assert change["users"] == [{"consumer": CONSUMER, "server": None, "amount": 1}]
