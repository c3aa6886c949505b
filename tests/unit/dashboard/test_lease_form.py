"""The form of a lease: its input is decoded to the body of a request."""

from datetime import UTC, datetime

import pytest

from moorage.core.errors import Invalid
from moorage.dashboard.views import lease_form as form

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
TYPED = {**form.DEFAULTS, "name": "course", "start_date": "2026-03-02T08:00", "end_date": "2026-03-02 12:00"}


def body(**typed):
    return form.parse_lease({**TYPED, **typed}, NOW).body


def reservation(**typed):
    return body(**typed)["reservations"][0]


def test_a_form_with_the_defaults_gives_a_lease_of_one_server():
    assert body() == {
        "name": "course",
        "start_date": "2026-03-02 08:00",
        "end_date": "2026-03-02 12:00",
        "reservations": [
            {"resource_type": "virtual:instance", "vcpus": 2, "memory_mb": 4096, "disk_gb": 20, "amount": 1,
             "resource_properties": ""}
        ],
    }  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in form.TYPES if kind != "physical:host"])
def test_affinity_may_be_left_out(kind):
    """R37 (instance-reservation): then the request does not contain the key, and is otherwise the same."""
    without = reservation(resource_type=kind, flavor_id="gold")
    assert without | {"affinity": None} == reservation(resource_type=kind, flavor_id="gold", affinity="none")
    assert "affinity" not in without
    assert without["amount"] == 1
    assert ("vcpus" in without, "flavor_id" in without) == (kind == "virtual:instance", kind == "flavor:instance")


@pytest.mark.parametrize(("word", "sent"), [("none", None), ("affinity", True), ("anti-affinity", False)])
def test_a_chosen_affinity_is_sent(word, sent):
    """R37 (instance-reservation)"""
    assert reservation(affinity=word)["affinity"] is sent


def test_a_reservation_of_whole_hosts_has_a_minimum_and_maximum_and_no_affinity():
    asked = reservation(resource_type="physical:host", min="2", max="", hypervisor_properties='["=", "$rack", "9"]')
    assert asked == {"resource_type": "physical:host", "min": 2, "max": 2, "resource_properties": "",
                     "hypervisor_properties": '["=", "$rack", "9"]'}  # fmt: skip


def test_resources_and_traits_are_entered_as_lines():
    asked = reservation(
        resource_type="resource:any", resources="VCPU=2\n\n CUSTOM_GOLD = 1 ", traits="CUSTOM_X=required"
    )
    assert asked == {"resource_type": "resource:any", "amount": 1, "resources": {"VCPU": 2, "CUSTOM_GOLD": 1},
                     "traits": {"CUSTOM_X": "required"}}  # fmt: skip


def test_a_bitstream_is_named_by_its_image_or_by_a_function():
    for named in ({"bitstream_id": "i"}, {"function_id": "f"}, {"function_name": "gzip"}):
        asked = reservation(resource_type="resource:any", **named)
        assert {name: value for name, value in asked.items() if name in named or "function" in name} == named


def test_a_form_without_a_start_begins_now():
    assert body(start_date="")["start_date"] == "now"
    assert form.parse_lease({**TYPED, "start_date": ""}, NOW).search(NOW, 3) == {
        "duration_minutes": 26 * 60 + 30, "reservations": [reservation()], "limit": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"end_date": ""}, "End"),
        ({"end_date": "2026-03-02T08:00"}, "End"),
        ({"start_date": "soon"}, "Start"),
        ({"amount": "many"}, "Amount"),
        ({"amount": "-1"}, "Amount"),
        ({"vcpus": "\N{SUPERSCRIPT TWO}"}, "VCPUs"),
        ({"memory_mb": "9" * 12}, "Memory"),
        ({"affinity": "sometimes"}, "Affinity"),
        ({"resource_type": "virtual:floatingip"}, "What to reserve"),
        ({"resource_type": "flavor:instance"}, "Flavor"),
        ({"resource_type": "resource:any", "resources": "VCPU"}, "Resources"),
        ({"resource_type": "resource:any", "resources": ""}, "Resources"),
        ({"resource_type": "resource:any", "traits": "X"}, "Traits"),
    ],
)
def test_an_invalid_input_is_an_error_that_names_the_field(typed, field):
    with pytest.raises(Invalid, match=f"^{field}"):
        body(**typed)


def test_actions_before_the_end_are_sent_only_if_they_were_chosen():
    assert not {"before_end_date", "before_end_actions"} & body().keys()
    asked = body(
        before_end_date="2026-03-02T11:00", snapshot="1", emails=" a@b.test\nc@d.test ", webhooks="https://x.test/y"
    )
    assert (asked["before_end_date"], asked["before_end_actions"]) == (
        "2026-03-02 11:00",
        [{"action": "snapshot"}, {"action": "email", "to": "a@b.test"}, {"action": "email", "to": "c@d.test"},
         {"action": "webhook", "url": "https://x.test/y"}],
    )  # fmt: skip


def test_the_actions_of_a_lease_are_shown_in_the_form_as_they_were_entered():
    typed = {"snapshot": "1", "emails": "a@b.test\nc@d.test", "webhooks": "https://x.test/y"}
    assert form.typed_actions(form.parse_actions(typed)) == typed
    assert form.typed_actions([]) == {"snapshot": "", "emails": "", "webhooks": ""}


def test_a_series_has_the_first_lease_a_count_and_an_interval():
    wish = form.parse_lease({**TYPED, "times": "3", "every_days": "14"}, NOW)
    assert wish.series_body == {**body(), "count": 3, "every_days": 14}


def test_a_hold_requests_exactly_the_period_of_the_form():
    later = form.parse_lease(TYPED, NOW).hold_body(NOW)
    assert later == {"duration_minutes": 240, "reservations": [reservation()], "earliest_start": "2026-03-02 08:00",
                     "latest_start": "2026-03-02 08:00"}  # fmt: skip
    now = form.parse_lease({**TYPED, "start_date": "2026-03-01T09:30"}, NOW).hold_body(NOW)
    assert (now["latest_start"], "earliest_start" in now) == ("2026-03-01 09:31", False)


def test_a_maintenance_names_its_hosts():
    typed = {"name": "", "start_date": "", "end_date": "2026-03-02 12:00", "hosts": "b, a\n\nb"}
    assert form.maintenance_body(typed, NOW) == {"name": "maintenance", "start_date": "now", "end_date": "2026-03-02 12:00",
                                            "hosts": ["b", "a"]}  # fmt: skip
    with pytest.raises(Invalid, match=r"^Hosts"):
        form.maintenance_body({**typed, "hosts": "\n"}, NOW)


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("rack=9", '["=", "$rack", "9"]'),
        (" vcpus >= 16 ", '[">=", "$vcpus", "16"]'),
        ("rack=9, gpu_model != A 100", '["and", ["=", "$rack", "9"], ["!=", "$gpu_model", "A 100"]]'),
        ('note="; x', '["=", "$note", "\\"; x"]'),
        ('["=", "$rack", "9"]', '["=", "$rack", "9"]'),
        ("", ""),
        ("rack", "rack"),
        ("rack=", "rack="),
        ("rack=9, nonsense", "rack=9, nonsense"),
    ],
)
def test_a_host_filter_may_be_a_list_of_comparisons(typed, sent):
    assert form.host_query(typed) == sent
