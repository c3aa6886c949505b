"""The command `moorage identity`, as shown in the guide to users and tokens."""

import json
import shlex
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from moorage.core.clock import SystemClock
from moorage.core.ids import SeededIds
from tests.people import create_first_people
from tests.system.planes import moorage, write_config

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "identity.md"


def commands():
    return [shlex.split(line[2:]) for line in GUIDE.read_text().splitlines() if line.startswith("$ moorage")]


def test_every_command_in_the_guide_runs_and_changes_the_key(tmp_path):
    config = write_config(tmp_path / "state")
    create_first_people(config, SystemClock(), SeededIds(1))
    key = config.state / "token.key"
    seen = {key.read_bytes()}
    for _, *words in commands():
        done = moorage(*words, MOORAGE_CONFIG=str(config.source))
        assert (done.returncode, done.stderr) == (0, "")
        seen.add(key.read_bytes())
    assert len(seen) == 1 + len(commands())


def test_rotate_key_prints_as_json_how_long_the_previous_key_is_kept(tmp_path):
    config = write_config(tmp_path / "state", identity={"token_lifetime_s": 60})
    create_first_people(config, SystemClock(), SeededIds(1))
    done = moorage("identity", "rotate-key", "--json", MOORAGE_CONFIG=str(config.source))
    until = datetime.fromisoformat(json.loads(done.stdout)["previous_key_until"])
    assert timedelta(hours=48) < until - SystemClock().now() < timedelta(hours=48, minutes=3)


def test_rotate_key_is_refused_with_keystone(tmp_path):
    options = {"mode": "keystone", "keystone_url": "http://k/v3", "password": "x"}
    config = write_config(tmp_path / "state", identity=options)
    done = moorage("identity", "rotate-key", MOORAGE_CONFIG=str(config.source))
    assert done.returncode == 1
    assert "has no tokens signed by this plane" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [({"mode": "keystone", "keystone_url": "http://k/v3", "password": "x"}, "in Keystone at http://k/v3"),
     ({"mode": "none"}, "has no users")],
)  # fmt: skip
def test_users_are_not_listed_where_the_plane_has_none(tmp_path, options, said):
    config = write_config(tmp_path / "state", identity=options)
    done = moorage("user", "list", MOORAGE_CONFIG=str(config.source))
    assert done.returncode == 1
    assert said in done.stderr
