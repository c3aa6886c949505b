"""Watching the change log and reading it in pages: entries, start, order, and permissions."""

import json
import threading
from datetime import timedelta

import pytest

from moorage.core.errors import Unavailable
from moorage.placement.forest.change_entries import Cursor, Filter
from moorage.placement.service import event_service
from moorage.placement.service.event_service import MIN_ROUND_PAUSE, RetentionTask

CONSUMER = "00000000-0000-4000-8000-00000000000a"


@pytest.fixture
def quick(monkeypatch):
    """Makes watches end at once if no entry is waiting."""
    monkeypatch.setattr(event_service, "WATCH_S", 0.0)


def host(wire, name="host", vcpu=8):
    uuid = wire.does("POST", "/resource_providers", {"name": name})["uuid"]
    body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": vcpu}}}
    wire.does("PUT", f"/resource_providers/{uuid}/inventories", body)
    return uuid


def claim(wire, provider, amount, consumer=CONSUMER, generation=None):
    body = {
        "allocations": {provider: {"resources": {"VCPU": amount}}} if amount else {},
        "project_id": "red",
        "user_id": "alice",
        "consumer_generation": generation,
        "consumer_type": "INSTANCE",
    }
    wire.does("PUT", f"/allocations/{consumer}", body)


def parsed(text):
    """[(id, event, data)] of an answer with server-sent events, and the last id that a client would keep."""
    events, last_id = [], ""
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        last_id = fields.get("id", last_id)
        if "data" in fields:
            events.append((fields["id"], fields["event"], json.loads(fields["data"])))
    return events, last_id


def watched(wire, since=None, query="", **headers):
    path = "/moorage/v1/events?" + "&".join(filter(None, [f"since={since}" if since is not None else "", query]))
    status, answer, text = wire.send("GET", path, **headers)
    assert status == 200, text
    assert answer["content-type"] == "text/event-stream"
    assert answer["cache-control"] == "no-cache"
    return parsed(text)


def test_every_write_is_an_event_with_the_whole_state_after_it(wire):
    provider = host(wire)
    claim(wire, provider, 3)
    wire.does("DELETE", f"/allocations/{CONSUMER}")
    events, _ = watched(wire, since=0)
    about = [(event, data["document"]) for _, event, data in events if data["subject"] == provider]
    assert [event for event, _ in about] == ["provider", "provider", "usages", "usages"]
    assert about[1][1]["inventories"]["VCPU"]["total"] == 8
    assert about[1][1]["parent_provider_uuid"] is None
    assert [document["usages"] for _, document in about[2:]] == [{"VCPU": 3}, {}]
    held = [data["document"] for _, _, data in events if data["subject"] == CONSUMER]
    assert held[0]["allocations"] == {provider: {"VCPU": 3}}
    assert (held[0]["project_id"], held[0]["consumer_type"]) == ("red", "INSTANCE")
    assert held[1:] == [None], "it holds nothing any more"


def test_events_come_in_the_order_of_commits_and_each_has_an_id_of_its_own(wire):
    for number in range(5):
        claim(wire, host(wire, f"host-{number}"), 1, CONSUMER[:-1] + str(number))
    events, last_id = watched(wire, since=0)
    places = [(data["sequence"], data["position"]) for _, _, data in events]
    assert places == sorted(set(places))
    assert [event_id for event_id, _, _ in events] == [f"{sequence}.{position}" for sequence, position in places]
    assert last_id == str(places[-1][0])


def test_a_watch_can_resume_after_any_id(wire):
    claim(wire, host(wire), 1)
    events, _ = watched(wire, since=0)
    for at, (event_id, _, _) in enumerate(events):
        assert watched(wire, since=event_id)[0] == events[at + 1 :]
        assert watched(wire, last_event_id=event_id)[0] == events[at + 1 :]


def test_the_last_event_id_header_overrides_the_start_in_the_url(wire):
    host(wire)
    events, _ = watched(wire, since=0)
    assert watched(wire, since=0, last_event_id=events[-2][0])[0] == events[-1:]


def test_a_watch_without_a_start_begins_now(wire):
    host(wire)
    events, last_id = watched(wire)
    assert events == []
    claim(wire, host(wire, "later"), 2)
    assert [event for _, event, _ in watched(wire, since=last_id)[0]] == ["provider", "provider", "usages", "consumer"]


def test_a_watch_can_be_limited_to_kinds_and_subjects(wire):
    provider, other = host(wire), host(wire, "other")
    claim(wire, provider, 3)
    events, last_id = watched(wire, since=0, query=f"kind=usages,consumer&subject={provider},{other},{CONSUMER}")
    assert sorted((event, data["subject"]) for _, event, data in events) == sorted(
        [("usages", provider), ("consumer", CONSUMER)]
    )
    assert {data["subject"] for _, _, data in watched(wire, since=0, query=f"subject={other}")[0]} == {other}
    assert watched(wire, since=last_id, query=f"subject={other}") == ([], last_id), "what was looked at is behind it"


def test_pages_have_the_same_entries_as_a_watch(wire):
    for number in range(4):
        claim(wire, host(wire, f"host-{number}"), 1, CONSUMER[:-1] + str(number))
    expected = [data for _, _, data in watched(wire, since=0)[0]]
    found, page = [], {"next": "0", "is_last": False}
    while not page["is_last"]:
        page = wire.does("GET", f"/moorage/v1/changes?since={page['next']}&limit=3")
        assert len(page["changes"]) <= 3
        found += page["changes"]
    assert found == expected
    assert page["last"] == expected[-1]["sequence"]
    assert wire.does("GET", "/moorage/v1/changes?limit=1000")["changes"] == expected


def test_a_page_reads_a_limited_range_of_the_log(wire, monkeypatch):
    """However rare the wanted entries are, one request reads a limited range of numbers and tells where it stopped."""
    monkeypatch.setattr(event_service, "WINDOW", 2)
    for number in range(6):
        host(wire, f"host-{number}")
    page = wire.does("GET", f"/moorage/v1/changes?since=0&subject={CONSUMER}")
    assert page["changes"] == []
    assert (page["next"], page["is_last"]) == ("2", False)
    _, last_id = watched(wire, since=2, query=f"subject={CONSUMER}")
    assert last_id == "4"


def test_a_long_answer_is_continued_in_the_next_one(wire, monkeypatch):
    monkeypatch.setattr(event_service, "MAX_BYTES", 1000)
    for number in range(3):
        host(wire, f"host-{number}")
    found, since = [], "0"
    while True:
        events, last_id = watched(wire, since=since)
        found += events
        if last_id == since:
            break
        assert len(events) <= 3
        since = last_id
    assert len(found) == len(wire.does("GET", "/moorage/v1/changes?limit=1000")["changes"])


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("since=999", "There is no change 999 yet; the last one is"),
        ("since=x", "Invalid query string parameters"),
        ("since=1.x", "Invalid query string parameters"),
        ("kind=host", "Invalid query string parameters"),
        ("subject=me", "Invalid query string parameters"),
        ("since=99999999999999999999", "Invalid query string parameters"),
        ("limit=5", "Invalid query string parameters"),
    ],
)
def test_an_invalid_start_or_filter_is_refused(wire, query, message):
    status, _, detail = wire.fails("GET", f"/moorage/v1/events?{query}")
    assert status == 400
    assert message in detail


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=-1", "limit=one"])
def test_the_size_of_a_page_is_limited(wire, query):
    assert wire.fails("GET", f"/moorage/v1/changes?{query}")[0] == 400


def test_an_id_in_the_future_is_refused(wire):
    for last_event_id in ("seven", "7.", "7.x", "-1", "٧"):  # noqa: RUF001 - an Arabic digit, which must be refused
        status, _, detail = wire.fails("GET", "/moorage/v1/events", last_event_id=last_event_id)
        assert status == 400
        assert "is not a position in the change log" in detail


def test_a_client_that_does_not_accept_event_streams_gets_406(wire):
    assert wire.send("GET", "/moorage/v1/events", accept="application/json")[0] == 406


@pytest.mark.parametrize(
    "path", ["events", "changes", f"history/providers/{CONSUMER}", f"history/consumers/{CONSUMER}"]
)
@pytest.mark.parametrize("roles", ["member", "reader", "member,reader"])
def test_callers_who_may_not_list_allocations_may_not_read_changes(wire, path, roles):
    assert wire.send("GET", f"/allocations/{CONSUMER}", who="alice:red", roles=roles)[0] == 403
    assert wire.send("GET", f"/moorage/v1/{path}", who="alice:red", roles=roles)[0] == 403


def test_services_and_admins_may_read_changes(wire):
    assert wire.send("GET", "/moorage/v1/events", who="nova", roles="service")[0] == 200
    assert wire.send("GET", "/moorage/v1/changes", who="root", roles="admin")[0] == 200


@pytest.fixture
def holding(plane):
    """The service of another process on the same database, which accepts two watches."""
    return plane.beside("holding", "placement", placement={"watchers": 2}).service("placement")


def test_an_answer_tells_when_to_reconnect(holding, quick):
    assert b"".join(holding.events.watch(Cursor(0), Filter())).startswith(b"retry: 500\n\n")
    holding.events.close()
    assert holding.events.watch(Cursor(0), Filter()).startswith(b"retry: 2000\n\n")


def test_a_watch_over_the_limit_gets_the_present_entries_and_ends(wire, holding):
    host(wire)
    watches = [holding.events.watch(Cursor(0), Filter()) for _ in range(2)]
    polled = holding.events.watch(Cursor(0), Filter())
    assert isinstance(polled, bytes)
    assert len(parsed(polled.decode())[0]) == len(parsed(next(watches[0]).decode())[0]) == 3
    for watch in watches:
        watch.close()
        watch.close()
    again = [holding.events.watch(Cursor(0), Filter()) for _ in range(3)]
    assert [isinstance(watch, bytes) for watch in again] == [False, False, True], "a place is given back once"


def test_a_watch_that_ends_allows_another_one(holding, quick):
    for _ in range(5):
        watch = holding.events.watch(holding.events.newest_cursor(), Filter())
        assert not isinstance(watch, bytes)
        assert b"".join(watch)


def test_a_watch_sees_what_another_process_commits_while_it_waits(wire, holding):
    watch = holding.events.watch(holding.events.newest_cursor(), Filter())
    assert parsed(next(watch).decode())[0] == []
    provider = host(wire)
    found = []
    while len(found) < 2:
        found += parsed(next(watch).decode())[0]
    assert [data["subject"] for _, _, data in found] == [provider, provider]


def test_a_watch_without_entries_sends_keepalives_with_its_position(wire, holding, monkeypatch):
    monkeypatch.setattr(event_service, "HEARTBEAT_S", 0.0)
    host(wire)
    watch = holding.events.watch(holding.events.newest_cursor(), Filter())
    next(watch)
    heartbeat = next(watch).decode()
    assert heartbeat.startswith(": ")
    assert parsed(heartbeat) == ([], str(holding.events.newest_cursor()))


def test_all_watches_end_when_the_service_is_closed(holding):
    watches = [holding.events.watch(holding.events.newest_cursor(), Filter()) for _ in range(2)]
    ended = []
    threads = [threading.Thread(target=lambda watch=watch: ended.append(list(watch))) for watch in watches]
    for thread in threads:
        thread.start()
    holding.events.close()
    for thread in threads:
        thread.join()
    assert len(ended) == 2


def test_a_watch_ends_after_its_maximum_of_entries_and_the_next_one_continues(wire, holding, monkeypatch):
    began = holding.events.newest_cursor()
    watch = holding.events.watch(began, Filter())
    sent = [next(watch).decode()]
    monkeypatch.setattr(event_service, "MAX_BYTES", 1_000)
    for number in range(4):
        host(wire, f"host-{number}")
    sent += [chunk.decode() for chunk in watch]
    assert sent[-1] == "retry: 10\n\n"
    events, last_id = parsed("".join(sent))
    rest = wire.does("GET", f"/moorage/v1/changes?since={last_id}&limit=1000")["changes"]
    everything = wire.does("GET", f"/moorage/v1/changes?since={began}&limit=1000")["changes"]
    assert 0 < len(events) < 8 == len(everything)
    assert [data for _, _, data in events] + rest[: 8 - len(events)] == everything


def test_a_watch_ends_when_the_database_is_gone(holding, monkeypatch):
    monkeypatch.setattr(event_service, "POLL_S", 0.0)
    watch = holding.events.watch(holding.events.newest_cursor(), Filter())
    next(watch)

    def gone(_connection):
        raise Unavailable("the database does not answer")

    monkeypatch.setattr(event_service.change_store, "last_number", gone)
    assert b"".join(watch) == b"retry: 2000\n\n: the database does not answer\n\n"


# --- entries that were deleted ------------------------------------------------------------------------------------


def delete_old_entries(engine, clock, **history):
    """Deletes all entries that are now older than `change_history`."""
    task = RetentionTask(engine, clock, history=timedelta(**history))
    while task.run_once() < clock.now() + MIN_ROUND_PAUSE:
        pass


def test_a_start_before_the_kept_range_is_410_with_the_oldest_number(wire, plane, clock):
    first = host(wire)
    before = wire.does("GET", "/moorage/v1/changes?limit=1000")["last"]
    clock.advance_to(clock.now() + timedelta(hours=2))
    host(wire, "later")
    delete_old_entries(plane.engine("placement"), clock, hours=1)
    for path in ("events", "changes"):
        status, _, detail = wire.fails("GET", f"/moorage/v1/{path}?since={before - 1}")
        assert status == 410
        assert f"the oldest retained one is {before + 1}" in detail
        assert f"since={before}" in detail
    assert len(watched(wire, since=before)[0]) == 2, "what is kept is there as a whole"
    assert wire.does("GET", "/moorage/v1/changes")["first"] == before + 1
    assert first not in {entry["subject"] for entry in wire.does("GET", "/moorage/v1/changes")["changes"]}
