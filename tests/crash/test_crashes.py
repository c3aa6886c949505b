"""The crash campaign of `make crash`, with fewer rounds.

The tests check only the median of recovery times, because other tests use the same cores. `make crash` checks each.
"""

import contextlib
import sqlite3
import statistics
import time

import pytest

from bench.processes import cpu_seconds
from moorage.db.engine import open_engine
from tests.conftest import DATABASES
from tests.crash.campaign import BACK_WITHIN_S, POINTS, DatabaseCampaign, ServerCampaign, World
from tests.crash.load import Wrong
from tests.crash.processes import DEADLINE_S, Server
from tests.crash.reading import Tables
from tests.servers import temporary_database

pytestmark = pytest.mark.slow


def unencrypted(url: str) -> str:
    """The URL with encryption disabled, so that `FatalLine` can read the protocol."""
    return f"{url}?sslmode=disable&gssencmode=disable" if url.startswith("postgresql") else url


@pytest.mark.core
def test_a_server_killed_at_a_commit_loses_no_acknowledged_write_and_leaves_no_partial_write(tmp_path, database_url):
    """Issue 3, "Crash": kills the server before and after a COMMIT while four clients work, then checks all data."""
    # The kill must hit a commit for a client, not one during the start.
    campaign = ServerCampaign(
        tmp_path / "server", unencrypted(database_url), ways=("commit", "committed"), least_nth=4, patience_s=DEADLINE_S
    )
    summary = campaign.run(2)
    assert summary.kills == {"commit": 1, "committed": 1}
    assert summary.unanswered.total() >= 2


@pytest.fixture(params=DATABASES[:2])
def url(request):
    with temporary_database(request.param) as url:
        yield unencrypted(url)


def test_no_acknowledged_write_is_lost_and_no_partial_write_is_left_when_the_server_is_killed(tmp_path, url):
    """Issue 3, "Crash": 50 kills at random moments and at each point around a commit; `make crash` has more."""
    summary = ServerCampaign(tmp_path / "server", url).run(50)
    died_at = set(summary.kills)
    assert died_at.issuperset({*POINTS, "answer", "random", "starting"} - {"statement"})
    assert any(where.startswith("statement") for where in died_at)
    assert summary.acknowledged.total() > 300
    assert set(summary.unanswered) == {"carried out", "not at all"}
    assert summary.quantile(0.5) < BACK_WITHIN_S


def test_a_server_that_dies_during_a_check_counts_as_another_kill(tmp_path, monkeypatch):
    campaign = ServerCampaign(tmp_path / "server", f"sqlite:///{tmp_path}/placement.db")
    looked_at = []

    def check(world):
        looked_at.append(world)
        if len(looked_at) == 1:
            campaign._server.kill()
        as_it_is(world)

    as_it_is = World.check
    monkeypatch.setattr(World, "check", check)
    summary = campaign.run(3)
    assert summary.kills["looked at"] == 1
    assert summary.kills.total() == 3


def test_a_new_process_needs_less_than_two_cpu_seconds_until_its_first_write(tmp_path, url):
    """Starts a new interpreter, kills it and starts another: CPU time until the first write, which does not depend on
    the other tests on this machine.
    """
    with Server(tmp_path / "server", url, zygote=False) as server:
        world = World(server.url, url, seed=1)
        for _ in range(2):  # the first start creates the tables
            server.start()
            assert world.first_write(time.perf_counter(), lambda: server.died(0.0) is not None)
            spent_s = cpu_seconds([server.pid])
            server.kill()
            server.died()
    assert spent_s < BACK_WITHIN_S


@pytest.mark.parametrize("kind", DATABASES[1:])
def test_no_acknowledged_write_is_lost_and_no_partial_write_is_left_when_the_database_is_killed(
    tmp_path, private_server, kind
):
    """The server must survive, reconnect by itself, and have the same data in memory as the database."""
    summary = DatabaseCampaign(tmp_path / "server", private_server(kind)).run(15)
    assert summary.acknowledged.total() > 300
    assert summary.unanswered.total() > 0
    # The time of the database's own start and recovery depends on the machine, so it is subtracted.
    pairs = zip(summary.back_s, summary.database_back_s, strict=True)
    assert statistics.median(back - database for back, database in pairs) < BACK_WITHIN_S


# ------------------------------------------------------------------------ the checks find errors in the data

SABOTAGE = {
    "a lost allocation": (
        "DELETE FROM allocations WHERE rowid = (SELECT max(rowid) FROM allocations)",
        "acknowledged was",
    ),
    "a consumer without allocations": (
        "INSERT INTO consumers (uuid, generation, project_id, user_id) VALUES ('c0', 1, 'p', 'u')",
        "consumer c0 holds nothing",
    ),
    "a lost update": ("UPDATE providers SET generation = generation - 1 WHERE name = 'shared-0'", "was moved"),
    "over capacity": (
        "UPDATE allocations SET used = 100000 WHERE rowid = (SELECT max(rowid) FROM allocations)",
        "over capacity",
    ),
    "a hole in the log": (
        "DELETE FROM changes WHERE sequence = (SELECT max(sequence) - 1 FROM changes)",
        "the log goes from",
    ),
    "a number without an entry": ("UPDATE change_sequence SET last = last + 1", "the counter at"),
    "a trait that memory does not know": (
        """INSERT INTO provider_traits SELECT p.id, t.id FROM providers p, traits t
        WHERE p.name = 'shared-0' AND t.name = 'HW_GPU_API_VULKAN'""",
        "the service says",
    ),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A world after 50 requests with the server still running, and its database file."""
    place = tmp_path_factory.mktemp("world")
    campaign = ServerCampaign(place / "server", f"sqlite:///{place}/placement.db")
    with campaign.running_with_load() as world:
        yield world, place / "placement.db"


@pytest.mark.parametrize("fault", SABOTAGE)
def test_the_check_finds_an_injected_fault_in_the_data(world, tmp_path, fault):
    world, database = world
    statement, complaint = SABOTAGE[fault]
    with (
        contextlib.closing(sqlite3.connect(database)) as whole,
        contextlib.closing(sqlite3.connect(tmp_path / "copy")) as copy,
    ):
        whole.backup(copy)
        world.check(Tables(open_engine(f"sqlite:///{tmp_path}/copy")))
        copy.execute(statement)
        copy.commit()
    with pytest.raises(Wrong, match=complaint):
        world.check(Tables(open_engine(f"sqlite:///{tmp_path}/copy")))
