"""Addresses under concurrent requests, on each database: none is given twice, and none is left out."""

import threading
from dataclasses import replace

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError

from moorage.core.caller import Caller
from moorage.core.clock import SystemClock
from moorage.core.errors import Conflict
from moorage.core.ids import RandomIds
from moorage.db.session import write
from moorage.network import port_service
from moorage.network.addressing import free_addresses
from moorage.network.deps import NetworkDeps
from moorage.network.entries import parse_entries
from moorage.network.port_service import ServerPort
from moorage.network.service import Networking
from moorage.network.store.tables import addresses
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database

THREADS, EACH = 4, 6
LINES = {"lab": "bridge br0 subnet 192.0.2.0/27 gateway 192.0.2.30 addresses 192.0.2.1-192.0.2.20"}


@pytest.fixture
def engine(kind):
    with migrated_engine("network", kind) as engine:
        yield engine


def test_a_request_for_many_ports_passes_over_the_used_addresses_once(engine, monkeypatch):
    looked_at = []

    def counted(pools, used):
        for address in free_addresses(pools, used):
            looked_at.append(address)
            yield address

    monkeypatch.setattr(port_service, "free_addresses", counted)
    ids = RandomIds()
    networking = Networking(NetworkDeps(engine, SystemClock(), ids))
    networking.networks.apply_entries(parse_entries({"lab": "bridge br0 subnet 198.18.0.0/16"}))
    ((network, _),) = networking.networks.networks(Caller("root", "admin", frozenset({"admin"})))
    ports = [ServerPort(ids.uuid(), "red", ids.uuid(), "compute-1", network.id) for _ in range(100)]
    for _ in range(2):
        networking.ports.provide([replace(port, id=ids.uuid()) for port in ports])
    assert len(looked_at) == len(set(looked_at)) == 200


@on_every_database
def test_concurrent_servers_get_every_address_once(engine):
    ids = RandomIds()
    networking = Networking(NetworkDeps(engine, SystemClock(), ids))
    networking.networks.apply_entries(parse_entries(LINES))
    networking.networks.apply_entries(parse_entries(LINES))  # a second process
    root = Caller("root", "admin", frozenset({"admin"}))
    ((network, subnets),) = networking.networks.networks(root)
    given, refused = [], []

    def boot() -> None:
        for _ in range(EACH):
            port = ServerPort(ids.uuid(), "red", ids.uuid(), "compute-1", network.id)
            try:
                given.extend(one.address for one in networking.ports.provide([port])[0][0].addresses)
            except Conflict as error:
                refused.append(error.error_code)

    threads = [threading.Thread(target=boot) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given, key=lambda one: int(one.rpartition(".")[2])) == [f"192.0.2.{at}" for at in range(1, 21)]
    assert refused == ["network.no_address"] * (THREADS * EACH - 20)
    port = networking.ports.ports(root, {})[0]
    row = {
        "network_id": network.id, "address": given[0], "subnet_id": subnets[0].id, "port_id": port.id,
    }  # fmt: skip
    with pytest.raises(IntegrityError), write(engine) as connection:
        connection.execute(insert(addresses), [row])
