"""The calendar and its feed show leases of the own project by name, and others only as usage (B9)."""

import json
import re
from datetime import UTC, datetime

from tests.wire.reservation.plane import instance, lease
from tests.wire.reservation.test_availability import MEMBER, OTHER, ask, book

DAY = "start_date=2026-03-02 00:00&end_date=2026-03-03 00:00".replace(" ", "%20")


def used(view):
    return [(each["start_date"][8:16], each["used"].get("VCPU", 0)) for each in view["busy"]]


def test_leases_of_other_projects_are_shown_only_as_usage(reserved):
    """Ids of other projects' leases would help an attacker: see LP#2120655."""
    theirs = book(reserved, 2, "02 10:00", "02 12:00", **OTHER)
    mine = book(reserved, 3, "02 11:00", "02 13:00")
    answer = ask(reserved, "GET", f"/v1/calendar?{DAY}")
    view = answer["calendar"]
    assert view["capacity"]["VCPU"] == 8
    assert used(view) == [("02T00:00", 0), ("02T10:00", 2), ("02T11:00", 5), ("02T12:00", 3), ("02T13:00", 0)]
    assert [each["id"] for each in view["leases"]] == [mine["id"]]
    assert not any(text in json.dumps(answer) for text in (theirs["id"], "other", theirs["user_id"] + '"'))
    seen_by_other = ask(reserved, "GET", f"/v1/calendar?{DAY}", **OTHER)["calendar"]
    assert seen_by_other["busy"] == view["busy"]
    assert [each["id"] for each in seen_by_other["leases"]] == [theirs["id"]]


def test_a_step_shows_the_maximum_usage_within_it(reserved):
    book(reserved, 2, "02 10:00", "02 10:30", **OTHER)
    book(reserved, 3, "02 10:30", "02 11:30")
    view = ask(reserved, "GET", f"/v1/calendar?{DAY}&step_minutes=120")["calendar"]
    assert used(view) == [("02T00:00", 0), ("02T10:00", 3), ("02T12:00", 0)]


def test_a_query_limits_the_calendar_to_matching_hosts(reserved):
    reserved.add_host("compute-2", vcpus=4)
    reserved.register("compute-2")
    wanted = instance(4, resource_properties='["=", "$hypervisor_hostname", "compute-2"]')
    body = lease(wanted, start="2026-03-02 10:00", end="2026-03-02 12:00")
    ask(reserved, "POST", "/v1/leases", body, status=201)

    def pool(name):
        query = f"&resource_properties=%5B%22%3D%22%2C%20%22%24hypervisor_hostname%22%2C%20%22{name}%22%5D"
        view = ask(reserved, "GET", f"/v1/calendar?{DAY}{query}")["calendar"]
        return view["capacity"].get("VCPU", 0), max(amount for _, amount in used(view))

    assert [pool(name) for name in ("compute-1", "compute-2", "compute-3")] == [(8, 0), (4, 4), (0, 0)]
    ask(reserved, "GET", f"/v1/calendar?{DAY}&resource_properties=nonsense", status=400)


def test_a_calendar_without_dates_covers_the_next_week(reserved):
    view = ask(reserved, "GET", "/v1/calendar")["calendar"]
    assert (view["start_date"][:16], view["end_date"][:16]) == ("2026-03-01T09:30", "2026-03-08T09:30")


def test_invalid_parameters_of_the_calendar_are_refused(reserved):
    for query in ("start_date=soon", "end_date=2026-02-01%2000:00", f"{DAY}&step_minutes=0", "colour=red",
                  "end_date=2030-02-01%2000:00&step_minutes=1", "start_date=9999-12-31%2023:00"):  # fmt: skip
        ask(reserved, "GET", f"/v1/calendar?{query}", status=400)


def feed(plane, **who):
    who = {"project": "demo", **MEMBER, **who}
    answer = plane.client("reservation", **who).request_raw("GET", "/v1/calendar.ics", version="1.1")
    assert answer.headers["content-type"] == "text/calendar; charset=utf-8"
    return answer.body


def events(raw):
    """The events as a reader of RFC 5545 parses them: [{property: value}]."""
    assert raw.endswith(b"\r\n")
    assert b"\n" not in raw.replace(b"\r\n", b"")
    assert all(len(line) <= 75 for line in raw.split(b"\r\n"))
    lines = raw.replace(b"\r\n ", b"").decode().split("\r\n")[:-1]
    assert (lines[0], lines[-1]) == ("BEGIN:VCALENDAR", "END:VCALENDAR")
    found = []
    for line in lines:
        name, _, value = line.partition(":")
        if line == "BEGIN:VEVENT":
            found.append({})
        elif found:
            found[-1][name] = re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), value)
    return found


def test_the_feed_has_the_projects_leases(reserved):
    name = "Kurs; Teil 1, \\ \u00fcber\nzwei Zeilen \U0001f600 " + "\u00e4" * 120
    body = lease(instance(), name=name, start="2026-03-05 10:00", end="2026-03-06 10:00")
    made = ask(reserved, "POST", "/v1/leases", body, status=201)["lease"]
    book(reserved, 1, "02 10:00", "02 11:00", **OTHER)
    (event,) = events(feed(reserved))
    assert (event["UID"], event["SUMMARY"], event["STATUS"]) == (made["id"], name, "CONFIRMED")
    assert event["DESCRIPTION"] == "PENDING: virtual:instance"
    times = [datetime.strptime(event[key], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) for key in ("DTSTART", "DTEND")]
    assert times == [datetime(2026, 3, 5, 10, tzinfo=UTC), datetime(2026, 3, 6, 10, tzinfo=UTC)]
    assert {"DTSTAMP"} <= event.keys()


def test_a_feed_without_leases_is_a_valid_calendar(reserved):
    assert events(feed(reserved)) == []
