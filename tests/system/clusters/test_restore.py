"""All copies of the data are wrong, or all are lost: the page of the reference, step by step, on a real Patroni cluster
and on three nodes of Galera.

Afterwards every row is the same as before on every server, the audit finds nothing, and the plane takes writes.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from moorage.core.clock import SystemClock
from tests.clusters import GaleraCluster
from tests.patroni import PatroniCluster
from tests.ports import free_port
from tests.servers import ServerMissing
from tests.system.clusters.shown import shown_commands
from tests.system.planes import WITH_DATABASE, PlaneClients, PlaneProcess, until, write_config
from tests.system.test_backup import json_output, moorage

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "restoring-a-cluster.md"
PATIENCE_S = 120

#: {database and table: its rows, sorted}
Content = dict[tuple[str, str], list[str]]


class Plane:
    """All services in one process, with something in each database."""

    def __init__(self, directory: Path, urls: Mapping[str, str]) -> None:
        # The second host is reserved for leases.
        hosts = {"host": "compute-1", "simulated_hosts": 2}
        config = write_config(directory / "state", server={"port": free_port()}, database=dict(urls), agent=hosts)
        self.config, self.backup = config.source, directory / "backup"
        self.process = PlaneProcess(self.config)

    def fill(self) -> None:
        """Makes users, a server with a port, one with an accelerator, and a lease; then stops the plane."""
        with self.process.start():
            clients = self.process.clients()
            clients.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-2"})
            start = SystemClock().now() + timedelta(days=1)
            self.lease = clients.create_lease(start=start, end=start + timedelta(hours=1), amount=1)
            image = clients.create_image()
            self.servers = [
                self._create_server(clients, clients.create_flavor("small"), image, "auto"),
                self._create_server(clients, clients.create_fpga_flavor(), image, "none"),
            ]
            # The host reports it after the server is ACTIVE.
            until(lambda: clients.accelerators_of(self.servers[1]), timeout_s=PATIENCE_S)
            self.process.stop()

    @staticmethod
    def _create_server(clients: PlaneClients, flavor: str, image: str, networks: str) -> str:
        body = {"name": flavor, "flavorRef": flavor, "imageRef": image, "networks": networks}
        server = clients.compute.request("POST", "/servers", json={"server": body})["server"]["id"]
        clients.wait_for_status(server, "ACTIVE", "ERROR", timeout_s=PATIENCE_S)
        assert clients.server(server)["status"] == "ACTIVE", clients.server(server).get("fault")
        return server

    def run(self, command: str) -> None:
        """A command of the page. Each succeeds; an audit that finds something does not."""
        given = {"/etc/moorage/moorage.conf": str(self.config), "/var/backups/moorage-1": str(self.backup)}
        words = [given.get(word, word) for word in shlex.split(command)]
        assert words[0] == "moorage", command
        config = words.index("--config")
        done = moorage(self.config, *words[1:config], *words[config + 2 :])
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    def check(self, audits: list[str]) -> None:
        """Starts the plane; the audit finds nothing, the objects are there, and new ones can be made."""
        with self.process.start():
            for audit in audits:
                self.run(audit)
            clients = self.process.clients()
            assert [clients.server(server)["status"] for server in self.servers] == ["ACTIVE", "ACTIVE"]
            assert [len(clients.accelerators_of(server)) for server in self.servers] == [0, 1]
            assert clients.lease(self.lease)["status"] == "PENDING"
            self._create_server(clients, "small", clients.create_image(), "none")
            self.process.stop()


def content_of_postgresql(connect) -> Content:
    """`connect(database)` returns a connection."""
    found = {}
    for database in sorted(WITH_DATABASE):
        with connect(database) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            for (table,) in tables:
                found[database, table] = sorted(map(repr, connection.execute(f'SELECT * FROM "{table}"').fetchall()))
    return found


def content_of_mariadb(cluster: GaleraCluster, node) -> Content:
    """What the node has when it has applied every commit of the others."""
    found = {}
    for database in sorted(WITH_DATABASE):
        with cluster.connection(node, database=database) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION wsrep_sync_wait = 7")
            cursor.execute("SHOW TABLES")
            for (table,) in cursor.fetchall():
                cursor.execute(f"SELECT * FROM `{table}`")
                found[database, table] = sorted(map(repr, cursor.fetchall()))
    return found


def require_content(content: Content) -> None:
    """Each database has rows besides those that every start writes."""
    for where in (
        ("identity", "users"), ("placement", "allocations"), ("compute", "servers"), ("reservation", "leases"),
        ("network", "ports"), ("accelerator", "accelerator_requests"),
    ):  # fmt: skip
        assert content[where], where


@pytest.fixture
def patroni() -> Iterator[PatroniCluster]:
    try:
        made = PatroniCluster()
    except ServerMissing as missing:
        pytest.skip(f"no Patroni: {missing}")
    with made:
        yield made


@pytest.mark.postgresql
def test_a_patroni_cluster_that_lost_all_data_is_restored_from_a_backup(patroni, tmp_path):
    members, remove, create, restore, *audits = shown_commands(
        PAGE, "test_a_patroni_cluster_that_lost_all_data_is_restored_from_a_backup"
    )
    plane = Plane(tmp_path, patroni.database_urls())
    plane.fill()
    before = content_of_postgresql(lambda database: patroni.primary().connection(dbname=database))
    require_content(before)
    json_output(moorage(plane.config, "backup", str(plane.backup), "--json"))

    with patroni.primary().connection(dbname="placement") as connection:
        connection.execute("DELETE FROM allocations")
    plane.run(restore)
    assert contents_on_both(patroni) == [before, before]

    patroni.destroy_data()
    until(lambda: "Leader" not in patroni.run(members), timeout_s=PATIENCE_S)
    patroni.run(remove)
    patroni.start_all()
    patroni.run(create)
    plane.run(restore)
    assert contents_on_both(patroni) == [before, before]
    plane.check(audits)


def contents_on_both(cluster: PatroniCluster) -> list[Content]:
    """The standby's when it has replayed everything that the primary has written."""
    primary = cluster.primary()
    (standby,) = (machine for machine in cluster.machines if machine is not primary)
    ((written,),) = primary.administer("SELECT pg_current_wal_lsn()")
    replayed = f"SELECT pg_last_wal_replay_lsn() >= '{written}'"
    until(lambda: standby.administer(replayed) == [(True,)], timeout_s=PATIENCE_S)
    return [
        content_of_postgresql(lambda database, machine=machine: machine.connection(dbname=database))
        for machine in (primary, standby)
    ]


@pytest.mark.mariadb
def test_a_galera_cluster_that_lost_all_data_is_restored_from_a_backup(tmp_path):
    restore, *audits = shown_commands(PAGE, "test_a_galera_cluster_that_lost_all_data_is_restored_from_a_backup")
    with GaleraCluster() as cluster:
        for service in WITH_DATABASE:
            cluster.add_database(service)
        plane = Plane(tmp_path, {service: cluster.url(database=service) for service in WITH_DATABASE})
        plane.fill()
        first, second, third = cluster.nodes
        before = content_of_mariadb(cluster, first)
        require_content(before)
        # Both hosts of the URL before the third one answer, and cannot be used.
        cluster.administer(first, "SET GLOBAL read_only = ON")
        cluster.administer(second, "SET GLOBAL wsrep_desync = ON")
        json_output(moorage(plane.config, "backup", str(plane.backup), "--json"))
        cluster.administer(third, "DELETE FROM placement.allocations")
        plane.run(restore)
        assert content_of_mariadb(cluster, third) == before
        cluster.administer(third, "SET GLOBAL read_only = ON")
        refused = moorage(plane.config, "restore", str(plane.backup))
        assert (refused.returncode, refused.stdout) == (1, "")
        assert re.search(
            rf"can be used \({first.host}: the server is read-only; {second.host}: the node is not synchronised "
            rf"\(wsrep_local_state 2\); {third.host}: the server is read-only\)",
            " ".join(refused.stderr.split()),
        ), refused.stderr

        cluster.destroy_data()
        cluster.bootstrap()
        for statement in filter(str.strip, sql_of_the_page().split(";\n")):
            cluster.administer(first, statement)
        plane.run(restore)
        assert [content_of_mariadb(cluster, node) for node in cluster.nodes] == [before] * 3
        plane.check(audits)


def sql_of_the_page() -> str:
    (sql,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return sql.replace("10.0.0.%", "127.0.0.1").replace(" IDENTIFIED BY 'PASSWORD'", "")
