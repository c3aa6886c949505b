"""A database that the bench has filled equals one that clients have filled over HTTP.

PostgreSQL has its own way of writing (COPY), and the others insert rows, so one cloud is filled on all three. The other
profiles are tested on SQLite.
"""

import json
import random
from collections import Counter
from contextlib import ExitStack

import pytest
from sqlalchemy import text

from bench import invariants, operations
from bench.cloud import Cloud
from bench.fill_ours import fill, patient_engine
from bench.load import Client
from bench.profile_ours import InProcess
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from tests.migrated import schema_of
from tests.plane import InProcessPlane
from tests.servers import temporary_database
from tests.store.conftest import on_every_database

HOSTS = 12


@pytest.fixture
def serve(tmp_path):
    """Placement on a database with tables: the plane, and the bench's connection to it."""
    with ExitStack() as stack:

        def start(url):
            directory = tmp_path / f"plane-{len(list(tmp_path.iterdir()))}"
            plane = InProcessPlane(
                directory, "placement", clock=SystemClock(), ids=RandomIds(), database={"placement": url}
            )
            stack.callback(plane.stop)
            return plane, InProcess(plane.alone("placement"))

        yield start


@pytest.fixture
def database_url(kind):
    with temporary_database(kind, schema_of("placement")) as url:
        yield url


@pytest.fixture
def slow_url():
    with temporary_database("sqlite", schema_of("placement")) as url:
        yield url


def run(connection, operation):
    for _step in operation(connection, Client(0, 1), random.Random(1), Counter()):
        pass


def api_state(connection, cloud):
    """Everything that the API shows except links, generations and the order."""
    providers = json.loads(connection.request("GET", "/resource_providers")[1])["resource_providers"]
    state = {}
    for one in providers:
        below = {}
        for kind in ("inventories", "traits", "aggregates", "usages", "allocations"):
            answer = json.loads(connection.request("GET", f"/resource_providers/{one['uuid']}/{kind}")[1])
            value = answer[kind]
            below[kind] = sorted(value) if isinstance(value, list) else value
        family = one["name"], one["parent_provider_uuid"], one["root_provider_uuid"]
        state[one["uuid"]] = (family, below)
    held = [json.loads(connection.request("GET", f"/allocations/{cloud.consumer(host)}")[1]) for host in range(HOSTS)]
    for one in held:
        for provider in one["allocations"].values():
            del provider["generation"]
    return state, held


@pytest.mark.parametrize(
    ("kind", "profile"),
    [
        *(("sqlite", profile) for profile in ("flat", "nested", "sharing", "wide")),
        pytest.param("postgresql", "nested", marks=pytest.mark.postgresql),
        pytest.param("mariadb", "nested", marks=pytest.mark.mariadb),
    ],
    indirect=["kind"],
)
def test_the_api_shows_the_same_cloud_whether_filled_directly_or_over_http(serve, database_url, slow_url, profile):
    cloud = Cloud(profile, HOSTS, 0 if profile == "wide" else 2)
    _, slow = serve(slow_url)
    operations.prepare(slow, cloud)
    run(slow, operations.loading(cloud, HOSTS))
    if cloud.servers_per_host:
        run(slow, operations.loading_servers(cloud))
    plane, quick = serve(database_url)
    operations.names(quick)
    # Queried before, so that the process has to read everything again.
    assert json.loads(quick.request("GET", "/resource_providers")[1]) == {"resource_providers": []}
    fill(database_url, cloud)
    assert api_state(quick, cloud) == api_state(slow, cloud)
    plane.stop()
    assert invariants.violations(database_url) == {}


@on_every_database
def test_direct_filling_completes_a_cloud_that_was_begun_over_http(serve, database_url):
    cloud = Cloud("nested", HOSTS, 1)
    plane, connection = serve(database_url)
    operations.prepare(connection, cloud)
    run(connection, operations.loading(cloud, 5))
    fill(database_url, cloud, first_host=5)
    # Later writes of clients get new numbers.
    run(connection, operations.claiming(cloud, 20))
    extra = {"name": "one more"}
    assert connection.request("POST", "/resource_providers", extra)[0] == 200
    state, held = api_state(connection, cloud)
    assert len(state) == sum(len(cloud.providers(host)) for host in range(HOSTS)) + len(cloud.others()) + 1
    assert all(one["allocations"] for one in held)
    plane.stop()
    assert invariants.violations(database_url) == {}


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        ("UPDATE allocations SET used = 100000", "more used than there is"),
        ("UPDATE allocations SET used = 0", "amounts that are no amounts"),
        ("UPDATE allocations SET provider_id = 999999", "allocations of what is not offered"),
        ("DELETE FROM consumers", "allocations of nobody"),
        ("DELETE FROM allocations", "consumers that hold nothing"),
        ("UPDATE inventories SET max_unit = 1", "amounts that one consumer may not hold"),
        ("UPDATE providers SET root_id = root_id + 1 WHERE parent_id IS NULL", "roots that are not their own"),
        ("UPDATE change_sequence SET last = 0", "changes after the last"),
    ],
)
def test_each_fault_in_a_database_is_found_as_a_violation(serve, fault, wrong, database_url):
    cloud = Cloud("nested", HOSTS, 2)
    plane, connection = serve(database_url)
    operations.names(connection)
    plane.stop()
    fill(database_url, cloud)
    with patient_engine(database_url) as engine, engine.begin() as connection:
        connection.execute(text(fault))
    assert wrong in invariants.violations(database_url)
