"""Changes while the trail cannot be written, and its destinations: the section [trail]."""

import json

import pytest

from moorage.core.errors import StartError
from tests.plane import InProcessPlane

TRAIT = "/placement/traits/CUSTOM_A"


def written(path):
    return [(entry["outcome"], entry["reason"]) if "reason" in entry else entry["outcome"] for entry in entries(path)]


def entries(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def lost(plane):
    return plane.plane.metrics.registry.get_sample_value("moorage_trail_lost_entries_total", {"sink": "file"})


def test_a_change_succeeds_without_its_entry_and_the_lost_entry_is_counted(tmp_path):
    with InProcessPlane(tmp_path, "placement", trail={"path": "gone/t"}) as plane:
        (tmp_path / "gone").rmdir()
        assert plane.send("PUT", TRAIT, version="1.39").status == 201
        assert lost(plane) == 1


def test_with_a_required_trail_a_change_without_an_entry_is_refused(tmp_path):
    with InProcessPlane(tmp_path, "placement", trail={"path": "later/t", "required": True}) as plane:
        (tmp_path / "later").rmdir()
        refused = plane.send("PUT", TRAIT, version="1.39")
        assert refused.status == 503
        assert "audit trail" in refused.body["errors"][0]["detail"]
        assert lost(plane) == 2, "that before the change, and that of the refusal"
        assert plane.send("GET", TRAIT, version="1.39").status == 404, "nothing was changed"
        (tmp_path / "later").mkdir()
        assert plane.send("PUT", TRAIT, version="1.39").status == 201
        assert written(tmp_path / "later" / "t") == [
            "pending",
            ("success", {"reasonType": "HTTP", "reasonCode": "201"}),
        ]
        plane.send("PUT", TRAIT, version="1.39", roles="member")
        refusal = {"reasonType": "HTTP", "reasonCode": "403", "code": "moorage.forbidden"}
        assert written(tmp_path / "later" / "t")[2:] == [("failure", refusal)], "what is refused before has one"


def test_a_pending_entry_describes_the_change_before_it_is_made(tmp_path):
    with InProcessPlane(tmp_path, "placement", trail={"required": True}) as plane:
        plane.send("PUT", TRAIT, version="1.39")
        before, after = entries(tmp_path / "trail.jsonl")
    for name in ("action", "initiator", "target", "route", "request_id"):
        assert before[name] == after[name], name


def test_the_trail_is_written_to_the_configured_destination(tmp_path):
    with InProcessPlane(tmp_path / "state", "placement", trail={"path": str(tmp_path / "who.jsonl")}) as plane:
        plane.send("PUT", TRAIT, version="1.39")
    assert len(entries(tmp_path / "who.jsonl")) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rotate_mb": 0.001}, "rotate_mb"),
        ({"keep": 0}, "keep"),
        ({"path": ""}, "neither path nor syslog"),
        ({"syslog": "nonsense"}, "udp://host:514"),
    ],
)
def test_invalid_options_are_refused_at_the_start(tmp_path, options, said):
    with pytest.raises(StartError, match=said):
        InProcessPlane(tmp_path, "placement", trail=options)
