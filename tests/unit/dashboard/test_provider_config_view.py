"""The view of provider configuration, which is computed from the answer of a host's agent."""

from moorage.dashboard.views.provider_config_view import agent_answer

INVENTORY = {"total": 4000, "reserved": 0, "min_unit": 1, "max_unit": 2, "step_size": 1, "allocation_ratio": 1.0}
STATE = {
    "host": "h1", "directory": "/etc/files", "refused": None, "before": None,
    "in_force": {"taken_at": "2026-03-01T09:30:00+00:00", "files": {"b.yaml": "B", "a.yaml": "A"}},
}  # fmt: skip


def order(do, state, result=None, **files):
    return {"id": "1", "do": do, "files": files, "state": state, "result": result}


def outcome(**provider):
    row = {
        "uuid": "u", "name": "h1", "is_created": False, "is_removed": False, "classes": [], "traits_added": [],
        "traits_removed": [],
    }  # fmt: skip
    return {"host": "h1", "providers": [row | provider], "warnings": ["mind the gap"]}


def test_a_waiting_order_keeps_the_entered_text():
    seen = agent_answer(order("plan", "waiting", gold="text"))
    assert (seen.is_waiting, seen.files, seen.changed) == (True, (("gold", "text"),), None)


def test_the_error_of_a_failed_order_is_shown_by_line_beside_the_entered_text():
    seen = agent_answer(order("apply", "failed", {"error": "first\nsecond"}, gold="text"))
    assert (seen.error, seen.files) == (("first", "second"), (("gold", "text"),))
    assert agent_answer(order("apply", "failed", {})).error == ("the host reported no reason",)


def test_the_files_in_force_are_shown_in_the_form():
    seen = agent_answer(order("show", "done", {"state": STATE, "outcome": None}))
    assert seen.files == (("a.yaml", "A"), ("b.yaml", "B"))
    assert (seen.in_force.taken_at, seen.before, seen.changed) == ("2026-03-01 09:30:00", None, None)


def test_planned_changes_are_shown_with_amounts_and_the_consumers_of_closed_classes():
    users = [{"consumer": "c", "server": "web", "amount": 2}, {"consumer": "d", "server": None, "amount": 1}]
    closed = {"name": "CUSTOM_GOLD", "how": "close", "before": INVENTORY, "after": None, "used": 3, "users": users}
    row = outcome(is_created=True, classes=[closed], traits_added=["A"], traits_removed=["B"])
    seen = agent_answer(order("plan", "done", {"state": STATE, "outcome": row}, gold="text"))
    (provider,) = seen.changed
    assert [change.what for change in provider.changes] == [
        "the provider is created", "close CUSTOM_GOLD", "add trait A", "remove trait B"
    ]  # fmt: skip
    gold = provider.changes[1]
    assert (gold.before, gold.after) == ("total 4,000, max_unit 2", "none")
    assert gold.note == "3 in use; no new allocations; existing ones stay until released"
    assert [(one.server, one.amount) for one in gold.users] == [("web", 2), ("", 1)]
    assert (seen.warnings, seen.files) == (("mind the gap",), (("gold", "text"),))


def test_a_reduced_inventory_is_shown_with_the_note_that_allocations_stay():
    users = [{"consumer": "c", "server": "web", "amount": 2}]
    row = {"name": "G", "how": "change", "before": INVENTORY, "after": INVENTORY, "used": 2, "users": users}
    seen = agent_answer(order("plan", "done", {"state": STATE, "outcome": outcome(classes=[row])}))
    assert seen.changed[0].changes[0].note == "2 in use; existing allocations stay"
