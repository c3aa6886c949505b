"""Actions before the end of a lease (B8): webhooks, mail, images of its servers; and Blazar's `before_end_actions`."""

import logging
import re
from contextlib import suppress
from datetime import timedelta
from email.message import EmailMessage

import pytest

from moorage.core.errors import Invalid, Unavailable
from moorage.reservation.events.event_executor import ACTION_TRIES
from moorage.reservation.leases.list_service import FAILED_FOR_OPERATOR
from moorage.reservation.model.before_end_actions import Allowed, EndAction, EndActionKind, split_url
from moorage.reservation.steps.notification_steps import MailServer
from tests.images import put_image
from tests.plane import Killed, failing
from tests.wire.reservation.listeners import Hooks, Mailbox
from tests.wire.reservation.plane import IMAGE, instance, lease
from tests.wire.reservation.processes import CREATE_IMAGE
from tests.wire.reservation.test_availability import ask
from tests.wire.reservation.test_host_reservations import boot, whole

SNAPSHOT = {"action": "snapshot"}
#: The clock starts at 09:30:20; minutes_before_end is 60.
WITHIN = {"end": "2026-03-01 12:00"}


@pytest.fixture
def hooks():
    with Hooks() as server:
        yield server


@pytest.fixture
def mailbox():
    with Mailbox() as server:
        yield server


def plane_with(new_plane, *, hooks=None, mailbox=None, of_hosts="nothing"):
    mail = {"smtp_server": f"127.0.0.1:{mailbox.port}", "mail_sender": "leases@example.org"} if mailbox else {}
    options = {"webhook_origins": hooks.origin if hooks else "", "mail_domains": "example.com", "smtp_security": "none"}
    plane = new_plane(before_end={**options, **mail, "lent_hosts": of_hosts})
    plane.add_host()
    plane.register()
    return plane


def webhook(hooks, path="/hook"):
    return {"action": "webhook", "url": hooks.origin + path}


def mail(to="somebody@example.com"):
    return {"action": "email", "to": to}


def make(plane, *actions, reservations=(), status=201, **values):
    body = lease(*reservations, **{**WITHIN, **values}, before_end_actions=list(actions))
    answer = ask(plane, "POST", "/v1/leases", body, status=status)
    plane.settle()
    return answer["lease"] if status == 201 else answer["error_message"]


def pass_to(plane, time):
    hour, minute = map(int, time.split(":"))
    plane.run_until(plane.clock.now().replace(hour=hour, minute=minute, second=0))


def shown(plane, made):
    return ask(plane, "GET", f"/v1/leases/{made['id']}")["lease"]


def shown_to_admin(plane, made):
    return plane.ask("GET", f"/v1/leases/{made['id']}", version="1.1")["lease"]


def before_end(document):
    return next(each for each in document["events"] if each["event_type"] == "before_end_lease")


def outcomes(plane, made):
    return [(each["action"], each["status"], each["attempts"]) for each in shown(plane, made)["before_end_actions"]]


def images(plane):
    """The images of servers."""
    return [row for row in plane.ask("GET", "/v2/images", service="image")["images"] if row["id"] != IMAGE]


def test_a_webhook_is_sent_once_at_its_time(new_plane, hooks):
    plane = plane_with(new_plane, hooks=hooks)
    made = make(plane, webhook(hooks, "/hook?key=secret"), name="course")
    assert outcomes(plane, made) == [("webhook", "planned", 0)]
    pass_to(plane, "10:59")
    assert hooks.seen == []
    pass_to(plane, "11:10")
    ((path, body),) = hooks.seen
    assert path == "/hook?key=secret"
    assert body["event_type"] == "before_end_lease"
    assert body["id"] == f"{made['id']}.202603011100"
    assert body["lease"] == {
        "id": made["id"],
        "name": "course",
        "project_id": "demo",
        "user_id": "u",
        "start_date": made["start_date"],
        "end_date": made["end_date"],
        "status": "ACTIVE",
    }
    assert outcomes(plane, made) == [("webhook", "done", 1)]
    pass_to(plane, "12:10")
    assert shown(plane, made)["status"] == "TERMINATED"
    assert len(hooks.seen) == 1


def test_mail_is_sent_once_over_smtp(new_plane, mailbox):
    plane = plane_with(new_plane, mailbox=mailbox)
    made = make(plane, mail(), name="cours\u00e9\r\nBcc: all@example.com")
    pass_to(plane, "11:10")
    ((sender, recipients, message),) = mailbox.seen
    assert (sender, recipients) == ("leases@example.org", ["somebody@example.com"])
    assert message["Subject"] == "Lease cours\u00e9  Bcc: all@example.com ends at 2026-03-01 12:00 UTC"
    assert "Bcc" not in message
    assert message["Message-ID"] == f"<{made['id']}.202603011100@example.org>"
    assert made["id"] in message.get_content()
    assert outcomes(plane, made) == [("email", "done", 1)]


def test_a_snapshot_of_each_server_is_created_for_its_project(new_plane):
    plane = plane_with(new_plane)
    made = make(plane, SNAPSHOT, reservations=[instance(2)])
    flavor = made["reservations"][0]["flavor_id"]
    servers = {plane.boot("a", flavor), plane.boot("b", flavor)}
    pass_to(plane, "11:10")
    found = images(plane)
    assert {image["instance_uuid"] for image in found} == servers
    assert sorted(image["name"] for image in found) == ["a-before-end", "b-before-end"]
    assert {image["owner"] for image in found} == {"demo"}
    assert {image["reservation_id"] for image in found} == {made["reservations"][0]["id"]}
    assert outcomes(plane, made) == [("snapshot", "done", 1)]
    pass_to(plane, "12:10")
    plane.run_for(30)
    assert shown(plane, made)["status"] == "TERMINATED"
    assert len(images(plane)) == 2


def test_a_server_in_error_does_not_fail_the_snapshots_of_the_others(new_plane):
    plane = plane_with(new_plane)
    made = make(plane, SNAPSHOT, reservations=[instance(5)])
    servers = [plane.boot(name, made["reservations"][0]["flavor_id"]) for name in "abcde"]
    broken = sorted(servers)[1]
    plane.act(broken, "os-resetState", {"state": "error"})
    pass_to(plane, "11:10")
    assert {image["instance_uuid"] for image in images(plane)} == {*servers} - {broken}
    assert outcomes(plane, made) == [("snapshot", "done", 1)]
    (action,) = shown(plane, made)["before_end_actions"]
    assert action["not_saved"] == [{"server_id": broken, "reason": "the server is in ERROR"}]
    assert action["error"] is None


def test_an_image_of_another_project_does_not_replace_the_snapshot(new_plane):
    """Any user can give an image these properties, so they do not prove that the snapshot of a server exists."""
    plane = plane_with(new_plane)
    made = make(plane, SNAPSHOT, reservations=[instance()])
    server_id = plane.boot("a", made["reservations"][0]["flavor_id"])
    alike = {
        "instance_uuid": server_id,
        "reservation_id": made["reservations"][0]["id"],
        "before_end": f"{made['id']}.202603011100",
    }
    for number, visibility in enumerate(("private", "shared", "community", "public")):
        image_id = f"bbbbbbbb-0000-4000-8000-{number:012}"
        put_image(plane.client("image"), image_id, owner="blue", visibility=visibility, properties=alike)
    pass_to(plane, "11:10")
    rows = plane.ask("GET", "/v2/images?visibility=all", service="image")["images"]
    assert [row["name"] for row in rows if row["owner"] == "demo" and row["id"] != IMAGE] == ["a-before-end"]
    assert outcomes(plane, made) == [("snapshot", "done", 1)]


@pytest.mark.parametrize(
    ("asked", "of_hosts", "count"),
    [("snapshot", "nothing", 1), ("default", "snapshot", 1), ("default", "nothing", 0), ("", "snapshot", 0)],
)
def test_before_end_actions_of_host_reservations_work_as_in_blazar(new_plane, asked, of_hosts, count):
    """They also work without the header of microversion 1.1, because Blazar's clients use them without it."""
    plane = plane_with(new_plane, of_hosts=of_hosts)
    body = lease(whole(before_end=asked), **WITHIN)
    made = plane.ask("POST", "/v1/leases", body, status=201)["lease"]
    plane.settle()
    boot(plane, made["reservations"][0])
    pass_to(plane, "11:10")
    assert len(images(plane)) == count
    assert before_end(plane.lease(made["id"]))["status"] == "DONE"


def test_a_failing_action_is_retried_then_reported_and_the_lease_ends(new_plane, hooks, mailbox, caplog):
    caplog.set_level(logging.INFO)
    plane = plane_with(new_plane, hooks=hooks, mailbox=mailbox)
    hooks.answers["/secret"] = (500, {})
    hooks.answers["/moved"] = (302, {"Location": hooks.origin + "/elsewhere"})
    made = make(plane, webhook(hooks, "/secret"), webhook(hooks, "/moved"), mail(), webhook(hooks))
    pass_to(plane, "11:10")
    paths = [path for path, _ in hooks.seen]
    assert paths == ["/secret"] * ACTION_TRIES + ["/moved"] * ACTION_TRIES + ["/hook"]
    assert [len(set(hooks.keys[:ACTION_TRIES])), len(set(hooks.keys))] == [1, 3], "one key for each, however often"
    assert all(re.fullmatch(rf'"{made["id"]}\.202603011100\.[0-9a-f]{{16}}"', key) for key in hooks.keys)
    assert outcomes(plane, made) == [
        ("webhook", "failed", ACTION_TRIES),
        ("webhook", "failed", ACTION_TRIES),
        ("email", "done", 1),
        ("webhook", "done", 1),
    ]
    document = shown_to_admin(plane, made)
    assert document["before_end_actions"][0]["error"] == f"send_webhook: {hooks.origin} answered 500"
    event = before_end(document)
    assert event["status"] == "ERROR"
    assert event["error"] == f"send_webhook: {hooks.origin} answered 500; send_webhook: {hooks.origin} answered 302"
    assert not any("/secret" in str(vars(record)) for record in caplog.records)
    assert document["status"] == "ACTIVE"
    pass_to(plane, "12:01")
    assert shown(plane, made)["status"] == "TERMINATED"


def test_a_project_sees_the_answer_of_its_webhook_but_no_errors_of_services(new_plane, hooks):
    """A service's error message about another service or a host contains addresses inside the cloud."""
    plane = plane_with(new_plane, hooks=hooks)
    hooks.answers["/hook"] = (500, {})
    made = make(plane, SNAPSHOT, webhook(hooks), reservations=[instance()])
    plane.boot("vm", made["reservations"][0]["id"])
    inside = "http://10.0.0.7:8774/compute does not answer"
    plane.cloud.ways["compute"].on("POST /v2.1/servers", failing(Unavailable(inside)))
    pass_to(plane, "11:05")

    def errors(*roles):
        document = plane.ask("GET", f"/v1/leases/{made['id']}", user="u", roles=roles, version="1.1")["lease"]
        assert [each["status"] for each in document["before_end_actions"]] == ["failed", "failed"]
        return [each["error"] for each in (*document["before_end_actions"], before_end(document))]

    said = f"send_webhook: {hooks.origin} answered 500"
    assert errors("admin") == [f"snapshot_server: {inside}", said, f"{said}; snapshot_server: {inside}"]
    assert errors("member") == [FAILED_FOR_OPERATOR, said, FAILED_FOR_OPERATOR]


def test_an_action_that_succeeds_after_a_retry_is_not_reported_as_failed(new_plane, mailbox):
    plane = plane_with(new_plane, mailbox=mailbox)
    mailbox.refuses = "451 later"
    made = make(plane, mail())
    pass_to(plane, "11:00")
    assert shown_to_admin(plane, made)["before_end_actions"][0] == {
        "action": "email",
        "to": "somebody@example.com",
        "status": "trying",
        "attempts": 1,
        "error": f"send_mail: the mail server 127.0.0.1:{mailbox.port} did not accept the message: SMTPRecipientsRefused",
    }
    mailbox.refuses = None
    pass_to(plane, "11:05")
    assert outcomes(plane, made) == [("email", "done", 2)]
    assert before_end(shown(plane, made))["status"] == "DONE"
    assert len(mailbox.seen) == 1


def test_no_password_is_sent_to_a_mail_server_without_tls(mailbox):
    server = MailServer("127.0.0.1", mailbox.port, "starttls", "leases@example.org", "leases", "secret")
    with pytest.raises(Unavailable, match="SMTPNotSupportedError") as refusal:
        server.send(EmailMessage())
    assert mailbox.verbs == ["EHLO"]
    assert "secret" not in refusal.value.message + repr(server)


def test_the_end_of_a_lease_does_not_wait_for_actions(new_plane, hooks):
    """Each action is tried once more at the end; if that fails, it is not tried later."""
    plane = plane_with(new_plane, hooks=hooks)
    hooks.answers["/hook"] = (503, {})
    made = make(plane, webhook(hooks), before_end_date="2026-03-01 12:00")
    other = make(plane, webhook(hooks, "/other"), reservations=[instance()])
    plane.run_until(plane.clock.now().replace(hour=10, minute=0))
    plane.stop_runner()
    plane.clock.advance_to(plane.clock.now().replace(hour=12, minute=0, second=30))
    while plane.runner.run_once() == plane.clock.now():
        pass
    assert shown(plane, made)["status"] == "TERMINATED"
    assert outcomes(plane, made) == [("webhook", "failed", 1)]
    assert sorted(path for path, _ in hooks.seen) == ["/hook", "/other"]
    assert outcomes(plane, other) == [("webhook", "done", 1)]


def test_a_prolonged_lease_runs_its_actions_again(new_plane, hooks):
    plane = plane_with(new_plane, hooks=hooks)
    made = make(plane, webhook(hooks))
    pass_to(plane, "11:10")
    refused = ask(plane, "PUT", f"/v1/leases/{made['id']}", {"before_end_actions": []}, status=409)
    assert "have already started" in refused["error_message"]
    ask(plane, "PUT", f"/v1/leases/{made['id']}", {"end_date": "2026-03-01 14:00"})
    assert outcomes(plane, made) == [("webhook", "planned", 0)]
    pass_to(plane, "13:10")
    assert [body["id"][-4:] for _, body in hooks.seen] == ["1100", "1300"]
    assert len(set(hooks.keys)) == 2
    later = {"end_date": "2026-03-01 16:00", "before_end_actions": [webhook(hooks, "/other")]}
    ask(plane, "PUT", f"/v1/leases/{made['id']}", later)
    plane.ask("PUT", f"/v1/leases/{made['id']}", {"name": "renamed"})
    pass_to(plane, "15:10")
    assert [path for path, _ in hooks.seen] == ["/hook", "/hook", "/other"]


def test_another_worker_continues_the_actions_and_repeats_none(new_plane, hooks):
    plane = plane_with(new_plane, hooks=hooks)
    made = make(plane, webhook(hooks), SNAPSHOT, reservations=[instance(2)])
    flavor = made["reservations"][0]["flavor_id"]
    servers = [plane.boot("a", flavor), plane.boot("b", flavor)]
    plane.stop_runner()
    pass_to(plane, "11:00")

    def die(call):
        if call.name == CREATE_IMAGE and doomed.asked.count(CREATE_IMAGE) == 2:
            raise Killed(call.name)

    doomed = plane.new_process(before=die)
    with pytest.raises(Killed):
        doomed.runner.run_once()
    assert (len(images(plane)), len(hooks.seen)) == (1, 1)
    plane.clock.advance_to(plane.clock.now() + timedelta(minutes=3))
    plane.settle()
    plane.new_process().runner.run_once()
    assert sorted(image["instance_uuid"] for image in images(plane)) == sorted(servers)
    assert len(hooks.seen) == 1
    assert outcomes(plane, made) == [("webhook", "done", 1), ("snapshot", "done", 1)]


@pytest.mark.parametrize("lost", [Killed("killed"), Unavailable("the answer was lost")])
def test_a_snapshot_whose_answer_was_lost_is_not_repeated(new_plane, lost):
    """Neither the same worker nor the next one repeats it. A prolongation repeats its actions, including snapshots."""
    plane = plane_with(new_plane)
    made = make(plane, SNAPSHOT, reservations=[instance()])
    plane.boot("a", made["reservations"][0]["flavor_id"])
    plane.stop_runner()
    pass_to(plane, "11:00")

    def lose(call):
        if call.name == CREATE_IMAGE and len(images(plane)) == 1:
            raise lost

    with suppress(Killed):
        plane.new_process(after=lose).runner.run_once()
    assert outcomes(plane, made)[0][1] == "trying"
    plane.settle()  # the host has made the image, so compute would accept a second request
    plane.clock.advance_to(plane.clock.now() + timedelta(minutes=3))
    plane.settle()
    plane.new_process().runner.run_once()
    (image,) = images(plane)
    assert image["before_end"] == f"{made['id']}.202603011100"
    assert outcomes(plane, made)[0][1] == "done"
    ask(plane, "PUT", f"/v1/leases/{made['id']}", {"end_date": "2026-03-01 14:00"})
    pass_to(plane, "13:00")
    plane.new_process().runner.run_once()
    assert sorted(image["before_end"][-4:] for image in images(plane)) == ["1100", "1300"]


REFUSED = [
    (
        {"action": "webhook", "url": "http://169.254.169.254/latest"},
        "Webhooks to http://169.254.169.254 are not allowed",
    ),
    ({"action": "webhook", "url": "ORIGIN.evil.example/"}, "must have the form https://host/path"),
    ({"action": "webhook", "url": "http://127.0.0.1:80@evil.example/"}, "must have the form https://host/path"),
    ({"action": "webhook", "url": "file:///etc/passwd"}, "must have the form https://host/path"),
    ({"action": "webhook", "url": "ORIGIN/a b"}, "must have the form https://host/path"),
    ({"action": "webhook"}, "Missing parameter url"),
    ({"action": "email", "to": "a@elsewhere.example"}, "Mail to elsewhere.example is not allowed"),
    ({"action": "email", "to": "a@example.com, b@example.com"}, "must be a single address"),
    ({"action": "email", "to": "a@example.com\r\nRCPT TO:<b@example.com>"}, "must be a single address"),
    ({"action": "email"}, "Missing parameter to"),
    ({"action": "snapshot", "to": "a@example.com"}, "Unknown parameter to"),
    ({"action": "reboot"}, "Malformed parameter action"),
]


def test_forbidden_actions_are_refused_at_once(new_plane, hooks, mailbox):
    plane = plane_with(new_plane, hooks=hooks, mailbox=mailbox)
    made = make(plane)
    for refused, words in REFUSED:
        action = {name: text.replace("ORIGIN", hooks.origin) for name, text in refused.items()}
        assert words in make(plane, action, status=400)
        answer = ask(plane, "PUT", f"/v1/leases/{made['id']}", {"before_end_actions": [action]}, status=400)
        assert words in answer["error_message"]
        answer = ask(plane, "POST", "/v1/leases/dry-run", lease(before_end_actions=[action]), status=400)
        assert words in answer["error_message"]
    assert shown(plane, made)["before_end_actions"] == []


def test_a_dry_run_lists_the_actions(new_plane, hooks, mailbox):
    plane = plane_with(new_plane, hooks=hooks, mailbox=mailbox)
    asked = [SNAPSHOT, mail(), webhook(hooks)]
    body = lease(**WITHIN, before_end_actions=asked, before_end_date="2026-03-01 11:30")
    said = ask(plane, "POST", "/v1/leases/dry-run", body)["lease"]
    assert (said["before_end_date"][:16], said["before_end_actions"]) == ("2026-03-01T11:30", asked)
    path = f"/v1/leases/{make(plane, mail())['id']}/dry-run"
    assert ask(plane, "POST", path, {"name": "other"})["lease"]["before_end_actions"] == [mail()]
    assert ask(plane, "POST", path, {"before_end_actions": [SNAPSHOT]})["lease"]["before_end_actions"] == [SNAPSHOT]
    assert (hooks.seen, mailbox.seen) == ([], [])


def test_without_allowed_addresses_only_snapshots_are_accepted(plane):
    plane.register()
    assert "Allowed by the operator: none" in make(
        plane, {"action": "webhook", "url": "https://example.org/"}, status=400
    )
    assert "cannot send mail" in make(plane, mail(), status=400)
    make(plane, mail(), mail("b@example.com"), *[SNAPSHOT] * 4, status=400)
    make(plane, SNAPSHOT)


def test_clients_of_1_0_neither_see_nor_request_actions(new_plane, hooks):
    plane = plane_with(new_plane, hooks=hooks)
    made = make(plane, webhook(hooks))
    old = plane.lease(made["id"])
    assert "before_end_actions" not in old
    assert all("error" not in event for event in old["events"])
    body = lease(**WITHIN, before_end_actions=[SNAPSHOT])
    words = "before_end_actions requires microversion 1.1: send the header OpenStack-API-Version: reservation 1.1"
    assert plane.ask("POST", "/v1/leases", body, status=400)["error_message"] == words
    change = {"before_end_actions": []}
    assert plane.ask("PUT", f"/v1/leases/{made['id']}", change, status=400)["error_message"] == words


def test_ambiguous_urls_are_refused():
    assert split_url("HTTPS://Example.org:443?a") is None
    assert split_url("https://Example.org:0443/a#b") is None
    assert split_url("HTTPS://Example.org:443/a") == ("https://example.org", "/a")
    assert split_url("http://[::1]:8080") == ("http://[::1]:8080", "/")
    assert split_url("http://a:70000/") is None
    with pytest.raises(Invalid):
        Allowed(frozenset({"http://a"})).check(EndAction(EndActionKind.WEBHOOK, "http://a\\@b/"))
