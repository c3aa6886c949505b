"""The guides for upgrading and audit show the real output of the commands, for databases and planes with faults."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.blocks import blocks
from tests.ports import free_port
from tests.store.placement.peer import SOUND, Source
from tests.system.audit.test_commands import ORPHAN, add_orphan_allocation
from tests.system.planes import PlaneProcess, moorage

pytestmark = pytest.mark.slow

GUIDES = Path(__file__).parents[3] / "docs" / "guides"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def shown(guide: str) -> Iterator[tuple[str, str]]:
    """(command, its output in the guide) of each command whose output is shown."""
    steps = (step for block in blocks(GUIDES / f"{guide}.md") for step in block.steps)
    return ((step.command, step.output) for step in steps if step.output)


def output_of(command: str, config: Path, directory: Path, *more: str) -> str:
    words = shlex.split(command)
    assert words[0] == "moorage"
    done = moorage(*words[1:], *more, directory=directory, MOORAGE_CONFIG=str(config))
    return done.stdout + done.stderr


def without_varying_values(text: str) -> list[str]:
    """The lines without values that differ from run to run: uuids, times, trailing blanks."""
    text = re.sub(r"\d{8}T\d{6}Z", "<time>", UUID.sub("<uuid>", text))
    return [line.rstrip() for line in text.rstrip().splitlines()]


def test_the_upgrade_guide_shows_the_output_of_its_commands(tmp_path):
    source = Source(f"sqlite:///{tmp_path}/peer.db")
    source.update("allocations", 1, used=15)
    source.update("resource_providers", 1, name="compute-1", uuid="5e1e4b58-8ad3-4d1c-a7b0-cd62f6d0f2a1")
    source.update("consumers", 1, uuid="c7f2a1de-1f0f-4a44-9d2c-0f6f2f0a9a11")
    source.update("allocations", 1, consumer_id="c7f2a1de-1f0f-4a44-9d2c-0f6f2f0a9a11")
    lost = "0d9b1c33-5b7e-4b62-8f43-6f0c2b8f7e55"
    source.add("allocations", SOUND["allocations"][0] | {"id": 2, "resource_provider_id": 78, "consumer_id": lost})
    source.add("consumers", SOUND["consumers"][0] | {"id": 2, "uuid": lost})
    config = tmp_path / "moorage.conf"
    config.write_text("[plane]\nservices = placement\nstate_path = .\n")
    blocks = list(shown("upgrading-from-openstack-placement"))
    assert [shlex.split(command)[:3] for command, _ in blocks] == [["moorage", "placement", "import"]] * 3
    for command, output in blocks:
        here = command.replace("mysql://placement@db/placement", source.url)
        wanted = output.replace("sqlite:////var/lib/moorage", f"sqlite:///{tmp_path}")
        assert without_varying_values(output_of(here, config, tmp_path)) == without_varying_values(wanted)


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    config = tmp_path_factory.mktemp("guides") / "state" / "moorage.conf"
    with PlaneProcess(config, "--port", str(free_port())) as plane:
        yield plane


def test_the_audit_guide_shows_the_output_of_its_commands(plane, tmp_path):
    placement = plane.clients().placement
    add_orphan_allocation(plane)
    placement.request("POST", "/resource_providers", json={"name": "compute-0"})
    blocks = list(shown("audit"))
    assert len(blocks) >= 3
    for command, output in blocks:
        assert without_varying_values(output_of(command, plane.config, tmp_path)) == without_varying_values(output), (
            command
        )
    assert placement.get(f"/allocations/{ORPHAN}")["allocations"] == {}
