"""The quota of ports under concurrent requests, on databases with several writers."""

import threading

from moorage.core.caller import Caller
from moorage.core.clock import SystemClock
from moorage.core.errors import OverQuota
from moorage.core.ids import RandomIds
from moorage.network.deps import NetworkDeps
from moorage.network.entries import parse_entries
from moorage.network.port_service import NewPort, ServerPort
from moorage.network.service import Networking
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database

THREADS, EACH, QUOTA = 4, 5, 7
#: One network per thread: requests for one network wait for each other anyway.
LINES = {f"lab{at}": f"vlan {at + 1} on br0 subnet 198.18.{at}.0/24" for at in range(THREADS)}


@on_every_database
def test_concurrent_requests_for_several_networks_do_not_exceed_the_quota(kind):
    """Half of the requests are a project's own ports, the others ports of its servers."""
    with migrated_engine("network", kind) as engine:
        ids = RandomIds()
        networking = Networking(NetworkDeps(engine, SystemClock(), ids, QUOTA))
        networking.networks.apply_entries(parse_entries(LINES))
        alice = Caller("alice", "red", frozenset({"member"}))
        networks = [network.id for network, _ in networking.networks.networks(alice)]
        start = threading.Barrier(THREADS)
        outcomes, unexpected = [], []

        def make(network_id: str, *, for_servers: bool) -> None:
            start.wait(30)
            for _ in range(EACH):
                try:
                    if for_servers:
                        networking.ports.provide([ServerPort(ids.uuid(), "red", ids.uuid(), "compute-1", network_id)])
                    else:
                        networking.ports.create_port(alice, NewPort(network_id, "red"), any_address=False)
                    outcomes.append("made")
                except OverQuota:
                    outcomes.append("refused")
                except Exception as error:  # the end of a thread: the test compares its error
                    unexpected.append(error)
                    raise

        threads = [
            threading.Thread(target=make, args=(network_id,), kwargs={"for_servers": at % 2 == 0})
            for at, network_id in enumerate(networks)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert unexpected == []
        assert len(networking.ports.ports(alice, {})) == outcomes.count("made") == QUOTA
        assert len(outcomes) == THREADS * EACH
