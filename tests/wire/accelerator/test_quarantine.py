"""The way out of quarantine: an operator gives a reason, the host cleans the handle again, and the history keeps both."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from moorage.accelerator.model.errors import CleanFailed
from moorage.cli.commands import accelerator as command
from tests.unit.accelerator.rig import GPU, HOST, fault, gpu, new_instance
from tests.wire.accelerator.test_operator import rig

__all__ = ["rig"]

RELEASE = "/moorage/v1/handles/release"


@pytest.fixture
def quarantined(rig):
    """A host whose GPU could not be cleaned."""
    rig.plug(new_instance(), gpu(), GPU)
    rig.order(fault("clean"))
    with pytest.raises(CleanFailed):
        rig.unplug(next(iter(rig.held.attachments)))
    rig.agent.run_once()
    return rig


def release(wire, role="admin", **more):
    body = {"host": HOST, "handle": GPU, "reason": "reseated the card"} | more
    return wire("POST", RELEASE, role=role, body=body)


def state(wire):
    rows = wire("GET", f"/moorage/v1/handles?host={HOST}").body["handles"]
    return next((row["state"], row["reason"]) for row in rows if row["handle"] == GPU)


def history(wire, rig):
    rig.agent.run_once()
    rows = wire("GET", f"/moorage/v1/history?host={HOST}&handle={GPU}").body["records"]
    return [(row["event"], row["result"], row["user_id"], row["reason"]) for row in rows[2:]]


def test_a_released_handle_is_cleaned_and_free_and_the_history_keeps_who_and_why(wire, quarantined):
    assert state(wire)[0] == "quarantined"
    quarantined.order()
    seen = release(wire)
    assert (seen.status, seen.body["handle"]["state"]) == (200, "free")
    assert state(wire) == ("free", None)
    assert not quarantined.is_dirty(GPU)
    (_, *after) = history(wire, quarantined)
    assert after == [("release", "done", "u", "reseated the card"), ("clean", "done", "u", "simulated; 0 s")]
    assert quarantined.plug(new_instance(), gpu(), GPU) == [GPU]


def test_a_handle_that_cannot_be_cleaned_stays_quarantined_and_the_operator_reads_why(wire, quarantined):
    seen = release(wire)
    assert (seen.status, "stays quarantined" in seen.fault) == (409, True)
    quarantined.agent.run_once()
    assert state(wire)[0] == "quarantined"
    assert state(wire)[1] in seen.fault
    (_, *after) = history(wire, quarantined)
    assert [(event, result, user) for event, result, user, _ in after] == [
        ("release", "done", "u"), ("quarantine", "failed", "u"),
    ]  # fmt: skip


def test_an_operator_can_vouch_for_a_handle_that_the_host_cannot_clean(wire, quarantined):
    cleaned = quarantined.watch.events.count(("simulated", "clean", GPU))
    seen = release(wire, reason=" erased it in another machine ", is_clean=True)
    assert (seen.status, seen.body["handle"]["state"]) == (200, "free")
    assert quarantined.watch.events.count(("simulated", "clean", GPU)) == cleaned
    (_, *after) = history(wire, quarantined)
    assert after == [
        ("release", "done", "u", "erased it in another machine"),
        ("clean", "done", "u", "freed without cleaning, on the word of an operator: erased it in another machine"),
    ]


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"handle": "0000:65:00.0"}, 409), ({"handle": "0000:99:00.0"}, 404), ({"host": "elsewhere"}, 404),
        ({"reason": ""}, 400), ({"reason": "  "}, 400), ({"reason": "x" * 1001}, 400), ({"more": 1}, 400),
        ({"role": "manager"}, 403), ({"role": "member"}, 403),
    ],
)  # fmt: skip
def test_other_releases_are_refused_and_change_nothing(wire, quarantined, more, status):
    quarantined.order()
    assert release(wire, **more).status == status
    assert state(wire)[0] == "quarantined"


def test_a_host_that_is_down_releases_the_handle_when_it_runs_again(wire, quarantined, hints):
    quarantined.order()
    hints.heard = lambda: None
    assert release(wire).status == 503
    assert release(wire, wait_s=0).body["handle"]["state"] == "quarantined"
    quarantined.works()  # both; the second one finds the handle free
    assert state(wire)[0] == "free"


def test_the_command_releases_a_handle(wire, quarantined, monkeypatch):
    quarantined.order()
    monkeypatch.setattr(command, "endpoints", lambda path: SimpleNamespace(accelerator=wire.client("admin")))

    def run(*arguments):
        return CliRunner().invoke(command.accelerator, ["release", HOST, GPU, *arguments])

    assert run().exit_code == 2  # without a reason
    assert "empty" in str(run("--reason", " ").exception)
    done = run("--reason", "reseated the card")
    assert (done.exit_code, done.output) == (0, f"{GPU} of {HOST} is free.\n")
    assert "is free, not quarantined" in str(run("--reason", "again", "--json").exception)
