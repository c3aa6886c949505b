"""Sends the requests recorded with Blazar 18, in sequence; each answer must have the format of the recorded one.

``recorded_blazar18.jsonl``: name, request, status and answer, with long answers shortened; ``"pass"`` is a round of its
events. Each difference must be explained here, and each explanation must explain a difference. docs/wire/differences.md
lists them.
"""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.docs.named import ROOT
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
    "plugins": (404, "Blazar's route always fails; here there is none"),
    "host create again": (409, "the message names the host and its id"),
    "host put empty": (400, "`error_name` is the status, as in all other refusals"),
    "prop bad": (404, "an unknown property is the client's mistake"),
    "lease without affinity key (seed says optional)": (201, "`affinity` is optional"),
    "amount too many": (409, "a lack of capacity is a conflict; the message tells how much is free, and when"),
    "amount text": (400, "the client's mistake; the message names the parameter"),
    "vcpus text": (400, "the message names the parameter"),
    "bad type": (400, "an unknown type is the client's mistake"),
    "bad props": (400, "the message describes the expected form"),
    "props unknown key": (400, "an unknown property is the client's mistake; the message names it"),
    "props lexical: rack > 9 (hosts have 9,10,10)": (201, "numbers are compared as numbers, not as texts"),
    "active: amount down": (200, "slots that no server uses are released"),
    "start moved after start": (400, "a lease that has started keeps its start; Blazar's then begins when it ends"),
    "TERMINATE end now": (200, "a lease that is ended in its first minute lasts for this minute"),
    "update terminated": (409, "that lease was ended in the request before, so the reason is another one"),
    "host too many": (409, "a lack of capacity is a conflict; the message tells how much is free, and when"),
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


def told(answer):
    """The status of an answer with the message of an error, without ids, as a cell of the page."""
    status, _, text = answer.partition(" ")
    document = json.loads(text) if text.startswith('{"error') else {}
    return UUID.sub("ID", f"{status} {document.get('error_message', '')}".strip()).replace("|", "\\|")


def section(differences):
    """The section of the page about reservations, with a row for each difference in the order of the requests."""
    requests = [call for call in RECORDED if not call.get("pass")]
    rows = [
        f"| `{call['method']} {UUID.sub('ID', call['path'])}` | {call['name']} | {theirs} | {ours} "
        f"| {EXPLAINED[call['name']][1]} |"
        for call in requests
        if call["name"] in differences
        for theirs, ours in [map(told, differences[call["name"]])]
    ]
    return [
        f"{len(rows)} of {len(requests)} recorded requests have another answer here:",
        "",
        "| request | recorded as | Blazar 18 | Moorage | why |",
        "|---|---|---|---|---|",
        *rows,
    ]


def test_the_page_lists_exactly_the_differences(differences):
    """If it fails, replace the part of the page by the lines that are expected here."""
    page = (ROOT / "docs" / "wire" / "differences.md").read_text()
    there = page.partition("\n## Reservations\n")[2].partition("\n## ")[0]
    expected = section(differences)
    start = next((at for at, line in enumerate(there.splitlines()) if "recorded requests have" in line), 0)
    assert there.splitlines()[start : start + len(expected) + 1] == [*expected, ""], "\n".join(expected)


def test_a_changed_format_is_detected():
    assert not is_same('{"lease": {"a": 1, "b": null}}', '{"lease": {"b": null, "a": 1}}')
    assert not is_same('{"t": "2026-01-01T00:00:00.000000"}', '{"t": "2026-01-01 00:00:00.000000"}')
    assert not is_same('{"a": 1, "b": "x", "c', '{"a": 1, "c": "x", "d": 2}')
    assert is_same('{"a": 1, "b": "x", "c', '{"a": 3, "b": "y", "c": 2}')
