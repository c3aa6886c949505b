"""How often a request that reads waits for the database: once, for the last change or for its one answer; not at all for
the last change where this process knows it.
"""

import pytest
from sqlalchemy import event

from moorage.db.single_reads import SingleReads

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


#: What consumers hold is not in memory.
HOLDINGS = [f"{URL}/allocations", f"/allocations/{CONSUMER}", "/usages?project_id=red", READS[12]]


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
    """Whatever the database was asked, one way or the other."""
    asked = []
    ask = SingleReads.run_select
    monkeypatch.setattr(
        SingleReads, "run_select", lambda self, sql, parameters: asked.append(sql.text) or ask(self, sql, parameters)
    )
    event.listen(plane.engine("placement"), "before_cursor_execute", lambda *arguments: asked.append(arguments[2]))
    return asked


@pytest.mark.parametrize("path", READS)
def test_a_read_waits_for_the_database_once(host, waits, path):
    assert host.send("GET", path)[0] in (200, 204)
    assert len(waits) == 1, waits


@pytest.mark.parametrize("path", READS)
def test_a_read_of_the_only_process_waits_for_what_is_not_in_memory(host, service, waits, path):
    """The task itself leaves SQLite alone, where the question is cheap."""
    host.send("GET", URL)
    service.writer_lease_task._step()
    waits.clear()
    assert host.send("GET", path)[0] in (200, 204)
    assert len(waits) == (path in HOLDINGS), waits


def test_after_an_own_write_nothing_is_asked_either(host, service, waits):
    host.send("GET", URL)
    service.writer_lease_task._step()
    host.does("PUT", f"{URL}/traits", {"resource_provider_generation": 3, "traits": []})
    assert host.send("PUT", "/traits/CUSTOM_GOLD")[0] == 201
    assert host.send("GET", "/traits/CUSTOM_GOLD")[0] == 204, "which reads the names"
    waits.clear()
    assert host.does("GET", f"{URL}/traits")["traits"] == []
    assert waits == []


@pytest.mark.parametrize("path", HOLDINGS[:2])
def test_what_is_held_is_asked_for_again_only_when_it_has_changed(host, service, waits, path):
    def asked(path):
        waits.clear()
        assert host.send("GET", path)[0] == 200
        return len(waits)

    host.send("GET", URL)
    service.writer_lease_task._step()
    assert [asked(path), asked(path)] == [1, 0]
    host.does("PUT", f"{URL}/traits", {"resource_provider_generation": 3, "traits": []})
    assert [asked(path), asked(path)] == [1, 0], "another generation of the provider"
    service.writer_lease_task.leave()
    assert asked(path) == 1, "another process may have claimed: here it is only asked for the last change"


def test_a_consumer_that_holds_nothing_is_always_asked_for(host, service, waits):
    host.send("GET", URL)
    service.writer_lease_task._step()
    waits.clear()
    nobody = CONSUMER.replace("1", "2")
    for count in (1, 2):
        assert host.does("GET", f"/allocations/{nobody}") == {"allocations": {}}
        assert len(waits) == count
