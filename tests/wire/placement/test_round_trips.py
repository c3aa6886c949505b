"""How often a read request waits for the database: once, for the last change number or for its only query."""

import pytest
from sqlalchemy import event

from moorage.db.session import SingleReads

ROOT = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e"
CONSUMER = "00000000-0000-4000-8000-000000000001"
URL = f"/resource_providers/{ROOT}"

READS = [
    "/resource_providers",
    "/resource_providers?name=host",
    "/resource_providers?resources=VCPU:1&required=HW_CPU_X86_AVX2",
    URL,
    f"{URL}/inventories",
    f"{URL}/inventories/VCPU",
    f"{URL}/usages",
    f"{URL}/traits",
    f"{URL}/aggregates",
    f"{URL}/allocations",
    f"/allocations/{CONSUMER}",
    "/usages?project_id=red",
    "/usages?project_id=red&user_id=alice",
    "/traits",
    "/traits/HW_CPU_X86_AVX2",
    "/resource_classes",
    "/resource_classes/VCPU",
    "/allocation_candidates?resources=VCPU:1&limit=10",
]


@pytest.fixture
def host(wire):
    wire.does("POST", "/resource_providers", {"name": "host", "uuid": ROOT})
    wire.does("PUT", f"{URL}/inventories", {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}})
    wire.does("PUT", f"{URL}/traits", {"resource_provider_generation": 1, "traits": ["HW_CPU_X86_AVX2"]})
    held = {
        "allocations": {ROOT: {"resources": {"VCPU": 1}}},
        "project_id": "red",
        "user_id": "alice",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    assert wire.send("PUT", f"/allocations/{CONSUMER}", held)[0] == 204
    return wire


@pytest.fixture
def waits(plane, monkeypatch):
    """Counts all statements, of either kind."""
    asked = []
    ask = SingleReads.run_select
    monkeypatch.setattr(
        SingleReads,
        "run_select",
        lambda self, sql, values: asked.append(sql.text) or ask(self, sql, values),
    )
    event.listen(plane.engine("placement"), "before_cursor_execute", lambda *arguments: asked.append(arguments[2]))
    return asked


@pytest.mark.parametrize("path", READS)
def test_a_read_waits_for_the_database_once(host, waits, path):
    assert host.send("GET", path)[0] in (200, 204)
    assert len(waits) == 1, waits
