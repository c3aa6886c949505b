"""Calendar feeds: a calendar program reads them by plain URL, with `urllib` over a socket and `icalendar` here."""

import json
import logging
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import create_server
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.parse import urlsplit

import icalendar
import pytest
from click.testing import CliRunner
from sqlalchemy import select

from moorage.cli.commands import calendar_feed as command
from moorage.core.caller import Caller
from moorage.core.errors import Invalid
from moorage.core.ids import SeededIds
from moorage.db.session import read, write
from moorage.identity.client import PasswordTokens
from moorage.identity.model import Assignment
from moorage.identity.tokens.passwords import hash_password
from moorage.reservation.client import ReservationClient
from moorage.reservation.leases.calendar_service import MAX_FEEDS, READS
from moorage.reservation.store import lease_store
from moorage.reservation.store.tables import calendar_feeds
from moorage.wire.server.http_server import HttpServer
from tests.plane import InProcessPlane
from tests.store.reservation.worlds import new_lease
from tests.wire.reservation.plane import instance, lease
from tests.wire.reservation.test_availability import MEMBER, OTHER, ask


@contextmanager
def served(app):
    """The URL of the application behind Moorage's own server."""
    listener = create_server(("127.0.0.1", 0))
    server = HttpServer(app, listener, threads=2)
    server.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.stop(5.0)


def get(url, **headers):
    """(status, headers, body) of a program that sends no token and no microversion."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.headers, answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def create(plane, name="phone", **who):
    return ask(plane, "POST", "/v1/calendar-feeds", {"name": name}, status=201, **who)["feed"]


def read_feed(plane, feed, url=None):
    """(status, document) of a request without any header of ours."""
    path = urlsplit(url or feed["url"])
    transport = plane.client("reservation")._transport
    answer = transport.send("GET", f"{path.path.removeprefix('/reservation')}?{path.query}", {})
    return answer.status, answer.body


def test_a_calendar_program_reads_a_feed_by_its_url(reserved):
    body = lease(instance(2), name="course, part 1; \u00e9", start="2026-03-05 10:00", end="2026-03-06 10:00")
    made = ask(reserved, "POST", "/v1/leases", body, status=201)["lease"]
    ask(reserved, "POST", "/v1/leases", {**body, "name": "secret"}, status=201, **OTHER)
    feed = create(reserved)
    with served(reserved.cloud.plane.app) as url:
        where = url + feed["url"][feed["url"].index("/reservation/") :]
        status, headers, found = get(where)
        assert (status, headers["content-type"]) == (200, "text/calendar; charset=utf-8")
        assert (headers["referrer-policy"], headers["cache-control"]) == ("no-referrer", "private, no-cache")
        (event,) = icalendar.Calendar.from_ical(found).walk("VEVENT")
        assert (str(event["summary"]), str(event["uid"])) == ("course, part 1; \u00e9", made["id"])
        assert event.decoded("dtstart") == datetime(2026, 3, 5, 10, tzinfo=UTC)
        assert event.decoded("dtend") == datetime(2026, 3, 6, 10, tzinfo=UTC)
        again, its_headers, nothing = get(where, **{"If-None-Match": headers["etag"]})
        assert (again, nothing, its_headers["etag"]) == (304, b"", headers["etag"])
        ask(reserved, "PUT", f"/v1/leases/{made['id']}", {"name": "course"})
        status, its_headers, found = get(where, **{"If-None-Match": headers["etag"]})
        assert (status, its_headers["etag"] != headers["etag"]) == (200, True)
        assert str(icalendar.Calendar.from_ical(found).walk("VEVENT")[0]["summary"]) == "course"


def test_the_secret_is_shown_once_and_only_its_hash_is_stored(reserved):
    feed = create(reserved)
    secret = feed["url"].partition("key=")[2]
    assert len(secret) == 43, "32 random octets"
    assert secret != create(reserved)["url"].partition("key=")[2]
    listed = ask(reserved, "GET", "/v1/calendar-feeds")["feeds"]
    assert [each.keys() & {"url", "secret", "secret_hash"} for each in listed] == [set(), set()]
    assert secret not in json.dumps(listed)
    with read(reserved.engine) as connection:
        rows = connection.execute(select(calendar_feeds)).all()
    assert secret not in repr(rows)


@pytest.mark.parametrize(
    "change",
    [lambda url: url[:-1], lambda url: url + "x", lambda url: url.partition("?")[0], lambda url: url + "&key=x"],
)
def test_a_wrong_secret_finds_nothing(reserved, change):
    feed = create(reserved)
    status, _ = read_feed(reserved, feed, change(feed["url"]))
    assert status == 404
    other = create(reserved, "other")
    mixed = feed["url"].partition("key=")[0] + "key=" + other["url"].partition("key=")[2]
    assert read_feed(reserved, feed, mixed)[0] == 404


def test_a_revoked_feed_answers_like_one_that_never_existed(reserved):
    feed, kept = create(reserved), create(reserved, "other")
    ask(reserved, "DELETE", f"/v1/calendar-feeds/{feed['id']}", status=204)
    ask(reserved, "DELETE", f"/v1/calendar-feeds/{feed['id']}", status=404)
    never = feed["url"].replace(feed["id"], "4d17d41a-830d-47b2-91c7-4f9fc0ae611e")
    revoked, unknown = read_feed(reserved, feed), read_feed(reserved, feed, never)
    assert (revoked[0], revoked[1]) == (404, unknown[1])
    assert read_feed(reserved, kept)[0] == 200


def test_only_its_owner_and_administrators_see_and_revoke_a_feed(reserved):
    feed = create(reserved)
    colleague = {"user": "colleague"}
    for who in (OTHER, colleague):
        assert ask(reserved, "GET", "/v1/calendar-feeds", **who) == {"feeds": []}
        ask(reserved, "DELETE", f"/v1/calendar-feeds/{feed['id']}", status=404, **who)
    ask(reserved, "POST", "/v1/calendar-feeds", {"name": "x"}, status=403, roles=("nothing",))
    as_admin = {"user": "root", "project": "admin", "roles": ("admin",)}
    (listed,) = ask(reserved, "GET", "/v1/calendar-feeds", **as_admin)["feeds"]
    assert (listed["id"], listed["user_id"], listed["project_id"], listed["read_at"]) == (
        feed["id"], MEMBER["user"], "demo", None,
    )  # fmt: skip
    read_feed(reserved, feed)
    assert ask(reserved, "GET", "/v1/calendar-feeds")["feeds"][0]["read_at"] is not None
    ask(reserved, "DELETE", f"/v1/calendar-feeds/{feed['id']}", status=204, **as_admin)
    assert read_feed(reserved, feed)[0] == 404


def test_the_feeds_of_a_user_and_the_reads_of_a_feed_are_limited(reserved):
    first = create(reserved)
    for _ in range(MAX_FEEDS - 1):
        create(reserved)
    refused = ask(reserved, "POST", "/v1/calendar-feeds", {"name": "x"}, status=403)
    assert "revoke one" in refused["error_message"]
    assert [read_feed(reserved, first)[0] for _ in range(READS + 1)] == [200] * READS + [429]
    assert read_feed(reserved, first, first["url"] + "x")[0] == 404, "who has no secret cannot use up the reads"
    reserved.run_for(61)
    assert read_feed(reserved, first)[0] == 200


def test_a_caller_without_a_project_creates_no_feed(reserved):
    """Keystone has tokens without a project; the tokens of these planes all have one."""
    caller = Caller("u", "", frozenset({"member"}))
    with pytest.raises(Invalid, match="scoped"):
        reserved.process.service.feeds.create_feed(caller, "x")


def test_no_log_and_no_trail_contains_the_secret(new_plane, tmp_path, caplog):
    plane = new_plane(trail={"path": str(tmp_path / "trail")})
    with caplog.at_level(logging.DEBUG):
        feed = create(plane)
        secret = feed["url"].partition("key=")[2]
        assert read_feed(plane, feed)[0] == 200
        assert read_feed(plane, feed, feed["url"].replace(feed["id"], "nothing"))[0] == 404
        plane.cloud.plane.engines["reservation"].dispose()
        Path(plane.cloud.directory / "reservation.db").rename(tmp_path / "gone")
        assert read_feed(plane, feed)[0] >= 500
    assert "calendar-feeds" in (tmp_path / "trail").read_text()
    assert secret not in (tmp_path / "trail").read_text()
    assert secret not in caplog.text
    assert secret not in "".join(repr(vars(record)) for record in caplog.records)


def test_the_command_creates_lists_and_revokes_feeds(reserved, monkeypatch):
    client = ReservationClient(reserved.client("reservation", "u", "demo", ("member",)))
    monkeypatch.setattr(command, "endpoints", lambda path: SimpleNamespace(reservation=client))

    def run(*words):
        result = CliRunner().invoke(command.calendar_feed, words)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output

    url = run("create", "phone").strip()
    assert read_feed(reserved, {"url": url})[0] == 200
    (listed,) = json.loads(run("list", "--json"))
    assert (listed["name"], listed["user_id"]) == ("phone", "u")
    assert "phone" in run("list")
    assert listed["id"] in run("revoke", listed["id"])
    assert read_feed(reserved, {"url": url})[0] == 404


# ------------------------------------------------------------------------------------- owners of the plane's own users


class People:
    """A plane with its own users, imported from a file; `set` changes them."""

    def __init__(self, directory):
        password = hash_password("of-alice", 4)
        file = directory / "users.yaml"
        users = {
            "alice": {"id": "alice", "password": password, "roles": {"red": ["member"]}},
            "moorage": {"id": "moorage", "password": password, "roles": {"service": ["service", "admin", "nothing"]}},
        }
        projects = {"red": {"id": "red"}, "service": {"id": "service"}}
        file.write_text(json.dumps({"projects": projects, "users": users}))  # JSON is YAML
        file.chmod(0o600)
        self.plane = InProcessPlane(
            directory / "plane",
            "identity,placement,image,compute,reservation",
            authenticator=None,
            credentials=None,
            identity={"users_file": str(file), "username": "moorage", "password": "of-alice"},
        )

    def set(self, *, roles=("member",), enabled=True, project=True):
        service = self.plane.plane.built["identity"]
        service.people.update_user("alice", {"enabled": enabled})
        service.people.update_project("red", {"enabled": project})
        held = {row for row in service.identity.accounts().assignments if row.actor_id == "alice"}
        wanted = {Assignment(role, "user", "alice", "project", "red") for role in roles}
        for row in held - wanted:
            service.roles.revoke(row)
        for row in wanted - held:
            service.roles.grant(row)

    def token(self):
        who = {"username": "alice", "password": "of-alice", "project": "red", "clock": self.plane.clock}
        return PasswordTokens(self.plane.transport("/identity"), **who).headers()["x-auth-token"]

    def feed(self):
        headers = {"x-auth-token": self.token(), "openstack-api-version": "reservation 1.1"}
        headers["content-type"] = "application/json"
        transport = self.plane.transport("/reservation")
        answer = transport.send("POST", "/v1/calendar-feeds", headers, b'{"name": "phone"}')
        assert answer.status == 201
        return json.loads(answer.body)["feed"]["url"].partition("/reservation")[2]

    def read(self, path):
        self.plane.run_for(70)  # the limit of reads is over
        answer = self.plane.transport("/reservation").send("GET", path, {})
        return answer.status, answer.body


@pytest.fixture
def people(tmp_path):
    people = People(tmp_path)
    with people.plane:
        yield people


@pytest.mark.parametrize("change", [{"enabled": False}, {"roles": ()}, {"roles": ("nothing",)}, {"project": False}])
def test_a_feed_ends_with_the_rights_of_its_owner_and_returns_with_them(people, change):
    made = new_lease(SeededIds(5), project="red", start=people.plane.clock.now() + timedelta(days=1),
                     end=people.plane.clock.now() + timedelta(days=2))  # fmt: skip
    with write(people.plane.engine("reservation")) as connection:
        lease_store.insert_lease(connection, made)
    path = people.feed()
    status, found = people.read(path)
    assert (status, made.id in found.decode()) == (200, True)
    people.set(**change)
    status, found = people.read(path)
    assert (status, made.id in found.decode()) == (404, False)
    people.set()
    assert people.read(path)[0] == 200
