"""The examples of the guide to changes, and of the change log's reference, work as shown."""

import json
import re
import shlex
from pathlib import Path

import pytest

from moorage.cli.main import cli
from moorage.placement.forest.change_entries import SubjectKind
from moorage.placement.forest.model import Inventory
from moorage.placement.rules.allocation_writes import AllocationWrite
from tests.plane import InProcessPlane

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "".join((DOCS / name).read_text() for name in ("guides/events.md", "reference/change-log.md"))
COMMANDS = [line[2:].partition("  #")[0] for line in PAGE.splitlines() if line.startswith("$ ")]
HOST = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e"
CONSUMER = "00000000-0000-4000-8000-00000000000a"


@pytest.fixture
def get(tmp_path):
    """A function that returns the body of a GET as an admin. There are enough claims on a host for a change 7 to
    exist.
    """
    plane = InProcessPlane(tmp_path, "placement")
    service = plane.service("placement")
    service.providers.create_provider("host", HOST, None)
    service.providers.set_inventories(HOST, 0, {"VCPU": Inventory(total=100)})
    for generation in (None, 1, 2, 3, 4):
        service.allocations.claim(
            [AllocationWrite(CONSUMER, {HOST: {"VCPU": 3}}, "red", "alice", "INSTANCE", generation)]
        )
    transport = plane.transport("/placement")

    def send(path):
        answer = transport.send("GET", path, {"x-auth-token": "admin"})
        assert answer.status == 200, answer.body
        return answer.body

    with plane:
        yield send


def test_the_example_has_the_keys_of_a_real_entry(get):
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    example = json.loads(example)
    entries = json.loads(get("/moorage/v1/changes?kind=consumer"))["changes"]
    assert list(example) == list(entries[0])
    assert set(example["document"]) == set(entries[0]["document"])
    assert example["document"]["allocations"] == entries[0]["document"]["allocations"]
    assert example["id"] == f"{example['sequence']}.{example['position']}"


def test_every_kind_of_entry_is_listed_with_the_keys_of_its_document(get):
    rows = dict(re.findall(r"^\| `(\w+)` \| .*? \| (.*) \|$", PAGE, re.MULTILINE))
    assert set(rows) == {kind.value for kind in SubjectKind}
    entries = json.loads(get("/moorage/v1/changes?limit=1000"))["changes"]
    for kind in ("provider", "usages", "consumer"):
        document = next(entry["document"] for entry in entries if entry["kind"] == kind)
        assert set(re.findall(r"`(\w+)`", rows[kind])) == set(document)


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("curl")])
def test_every_request_of_the_page_succeeds(get, command):
    url = shlex.split(command)[-1]
    assert url.startswith("$PLACEMENT/")
    assert get(url.removeprefix("$PLACEMENT"))


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("moorage")])
def test_every_command_of_the_page_has_the_options_that_it_uses(command):
    name, *words = shlex.split(command)[1:]
    parsed = cli.get_command(None, name).make_context(name, words)
    assert parsed.params
