"""Sends the requests recorded with Blazar 18, in sequence; each answer must have the format of the recorded one.

``recorded_blazar18.jsonl``: name, request, status and answer, with long answers shortened; ``"pass"`` is a round of its
events. Each difference must be explained here, and each explanation must explain a difference.
"""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.wire.reservation.plane import Plane

#: Without the request that needs a header, which is in `test_leases_api`.
RECORDED = [
    call
    for line in Path(__file__).with_name("recorded_blazar18.jsonl").read_text().splitlines()
    if (call := json.loads(line))["name"] != "bad microversion"
]

#: The time of the recording; the dates in the requests are near it.
THEN = datetime(2026, 11, 20, 15, 42, 24, tzinfo=UTC)

WHO = {
    "other project reads lease": {"user": "x", "project": "other", "roles": ("member",)},
    "other project list": {"user": "x", "project": "other", "roles": ("member",)},
    "member lists hosts": {"user": "x", "project": "p", "roles": ("member",)},
}

#: Keys that may be null in only one of the two answers, or whose text depends on the machine.
LOOSE = ("trust_id", "aggregate_id", "server_group_id", "updated_at", "cpu_info", "availability_zone", "status")

#: {recorded request: (status here, the reason for another status or another answer)}
EXPLAINED = {
    "plugins": (404, "always an error there; a route that is not there is not found"),
    "host create again": (409, "the reason is told"),
    "host put empty": (400, "error_name is the number, as everywhere else"),
    "prop bad": (404, "a property that is not there is not found: no fault of the server"),
    "lease without affinity key (seed says optional)": (201, "affinity is optional: R15"),
    "amount too many": (409, "D16, with what could be had"),
    "amount text": (400, "D16"),
    "vcpus text": (400, "the parameter is named"),
    "bad type": (400, "D16"),
    "bad props": (400, "what is expected is told"),
    "props unknown key": (400, "D16"),
    "props lexical: rack > 9 (hosts have 9,10,10)": (201, "numbers are compared as numbers"),
    "active: amount down": (200, "slots that no server uses are released"),
    "start moved after start": (400, "D14"),
    "TERMINATE end now": (200, "a lease in its first minute ends with it"),
    "update terminated": (409, "that lease ends in a minute here, so there is another reason"),
    "host too many": (409, "D16, with what could be had"),
}

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def shape(text):
    """The keys in order and the types of the values, as text; a shortened value has a shorter text."""
    text = re.sub(rf'"({"|".join(LOOSE)})": (?:null|\d+|"(?:[^"\\]|\\.)*")', r'"\1": ?', text)
    text = re.sub(r'": "\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}"', '": DATE', text)
    text = re.sub(r'": "\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}"', '": TIME', text)
    text = re.sub(r'": "(?:[^"\\]|\\.)*"', '": TEXT', text)
    text = re.sub(r'": -?\d+', '": NUMBER', text)
    return re.sub(r'": (?:true|false)', '": FLAG', text)


def is_same(recorded, ours):
    if recorded.startswith('{"error'):
        return json.loads(recorded) == json.loads(ours)
    wanted, got = shape(recorded), shape(ours)
    if is_whole(recorded):
        return wanted == got
    return got.startswith(wanted.rpartition(", ")[0])


def is_whole(text):
    try:
        json.loads(text or "null")
    except ValueError:
        return False
    return True


@pytest.fixture(scope="module")
def differences(tmp_path_factory):
    """{name: (recorded status and answer, ours)} of all differences."""
    with Plane(tmp_path_factory.mktemp("recorded"), now=THEN) as plane:
        yield differences_of(plane)


def differences_of(plane):
    plane.stop_runner()
    for number in (1, 2, 3):
        plane.add_host(f"compute-{number}")
    ids, found = {}, {}

    def translated(text):
        return UUID.sub(lambda known: ids.get(known[0], known[0]), text)

    for call in RECORDED:
        plane.clock.sleep(0.1)
        if call.get("pass"):
            plane.runner.run_once()
            continue
        path, body, recorded = (translated(text) for text in (call["path"], json.dumps(call["body"]), call["answer"]))
        who = WHO.get(call["name"], {"user": "u", "project": "p"})
        status, document = plane.answer(call["method"], path, json.loads(body), **who)
        ours = "" if document is None else json.dumps(document)
        ids |= zip(UUID.findall(call["answer"]), UUID.findall(ours), strict=False)
        if status != call["status"] or not is_same(translated(call["answer"]), ours):
            found[call["name"]] = (f"{call['status']} {recorded}", f"{status} {ours}")
        if call["status"] >= 400 and status == 201 and "/leases" in path:
            plane.ask("DELETE", f"/v1/leases/{document['lease']['id']}", status=204)
    return found


def test_every_answer_has_the_recorded_format_or_an_explained_difference(differences):
    """R13 (instance-reservation)."""
    unexplained = {name: both for name, both in differences.items() if name not in EXPLAINED}
    assert unexplained == {}


def test_every_explanation_explains_a_difference(differences):
    assert set(EXPLAINED) - set(differences) == set()
    wrong = {name: both for name, both in differences.items() if not both[1].startswith(str(EXPLAINED[name][0]))}
    assert wrong == {}


def test_a_changed_format_is_detected():
    assert not is_same('{"lease": {"a": 1, "b": null}}', '{"lease": {"b": null, "a": 1}}')
    assert not is_same('{"t": "2026-01-01T00:00:00.000000"}', '{"t": "2026-01-01 00:00:00.000000"}')
    assert not is_same('{"a": 1, "b": "x", "c', '{"a": 1, "c": "x", "d": 2}')
    assert is_same('{"a": 1, "b": "x", "c', '{"a": 3, "b": "y", "c": 2}')
