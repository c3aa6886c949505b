"""The list of leases: what a row says, and what an act on several leases does to each."""

from urllib.parse import urlencode

import pytest

from moorage.dashboard.handlers.leases import list_address
from moorage.dashboard.views.lease_list import LeaseRow, heading_count, list_columns, list_parameters
from moorage.dashboard.views.selected_leases import LEASES
from moorage.dashboard.views.selection import button_text, done_text, why_not_selected
from moorage.dashboard.views.tables import chosen_order, headings, table_rows
from moorage.reservation.model.leases import LeaseStatus
from tests.unit.dashboard.test_lease_view import lease

COLUMNS = list_columns(is_all=True)


def rows():
    return [
        LeaseRow(lease("run 10", "ACTIVE", 3), "vision", "ann"),
        LeaseRow(lease("run 9", day=2), "vision", "bob"),
        LeaseRow(lease("disks", day=10, resource_type="physical:host", min=1, max=3), "plant", "ann"),
    ]


def shown(sort=None, find=""):
    return [row.lease.name for row in table_rows(rows(), COLUMNS, chosen_order(sort, COLUMNS), find)]


def test_the_rows_keep_the_order_of_the_service_until_a_heading_sorts_them():
    assert shown() == shown("nonsense") == shown("-") == ["run 10", "run 9", "disks"]
    assert shown("name") == ["disks", "run 9", "run 10"]
    assert shown("-start") == ["disks", "run 10", "run 9"]
    assert shown("person")[2] == "run 9"
    unsorted = headings(COLUMNS, chosen_order("nonsense", COLUMNS), {"show": "all"}, urlencode)
    assert {one.order for one in unsorted} == {"none"}
    assert unsorted[0].query == "show=all&sort=name"


def test_words_of_any_column_find_a_row():
    assert shown(find="VISION ann") == ["run 10"]
    assert shown(find="03-10") == ["disks"]
    assert shown(find="whole hosts") == ["disks"]
    assert shown(find="vision plant") == []


def test_only_the_list_of_all_projects_has_their_column():
    assert [column.key for column in list_columns(is_all=False)] == ["name", "status", "person", "start", "end", "what"]


def test_the_number_in_a_heading_says_if_there_are_more():
    assert heading_count(12, 12, has_more=False, is_filtered=False) == "12"
    assert heading_count(1000, 1000, has_more=True, is_filtered=False) == "1,000+"
    assert heading_count(3, 1000, has_more=True, is_filtered=True) == "3 of 1,000+"


def test_an_address_keeps_the_parameters_of_the_list_only():
    sent = {"find": " a&b ", "show": "all", "sort": "", "do": "end", "next": "https://evil.test"}
    kept = list_parameters(sent.get)
    assert kept == {"show": "all", "find": "a&b"}
    assert list_address(kept) == "/leases?show=all&find=a%26b"
    assert list_address(kept, find="", show="") == "/leases"


@pytest.mark.parametrize("status", list(LeaseStatus))
def test_an_act_is_offered_for_each_status_or_says_why_not(status):
    found = lease(status=status.value)
    for choice in ("end", "delete"):
        act, words = LEASES.act_on(found, choice)
        assert words
        assert act == "" or (LEASES.acts[act].choice == choice and words == LEASES.acts[act].effect)
    assert (LEASES.act_on(found, "end")[0] == "end") == (status is LeaseStatus.ACTIVE)


def test_only_a_lease_that_has_started_loses_servers():
    kinds = {status: LEASES.act_on(lease(status=status), "delete")[0] for status in LeaseStatus}
    assert {status for status, act in kinds.items() if act == "cancel"} == {"CREATING", "PENDING"}
    assert {status for status, act in kinds.items() if act == "delete_ended"} == {"TERMINATED"}
    assert kinds["DELETING"] == ""


def test_buttons_and_results_count_the_leases():
    assert button_text(LEASES, ["end"]) == "End 1 lease"
    assert button_text(LEASES, ["delete", "cancel", "delete_ended"]) == "Cancel 1 and delete 2 leases"
    assert done_text(LEASES, ["end", "end"], 0) == "2 leases ended"
    assert done_text(LEASES, ["delete", "cancel", "delete"], 1) == "1 lease cancelled, 2 deleted, 1 refused"
    assert done_text(LEASES, [], 3) == "No lease was changed"


def test_no_lease_and_too_many_are_refused():
    assert "No lease is selected" in why_not_selected(LEASES, 0)
    assert why_not_selected(LEASES, 50) == ""
    assert "At most 50" in why_not_selected(LEASES, 51)
