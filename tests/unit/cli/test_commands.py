"""The `moorage` command without a plane: help, wrong usage and error messages."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from moorage.cli.state import default_config_path, open_or_make_config, parse_period
from moorage.config import Config
from moorage.core.errors import StartError
from moorage.db import migrations
from moorage.db.engine import open_engine
from tests.ports import free_port

MOORAGE = Path(sys.executable).with_name("moorage")


def moorage(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MOORAGE, *words], capture_output=True, text=True, timeout=60, check=False)


def test_help_lists_every_command():
    done = moorage("--help")
    assert done.returncode == 0
    for command in ("up", "env", "clock", "config"):
        assert command in done.stdout


def test_config_show_defaults_needs_no_plane():
    done = moorage("config", "show", "--defaults")
    assert done.returncode == 0
    assert "state_path = .\n" in done.stdout


def test_an_error_is_printed_in_one_line_with_exit_code_1(tmp_path):
    done = moorage("env", "--config", str(tmp_path / "none.conf"))
    assert done.returncode == 1
    assert done.stderr.startswith("moorage: ")
    assert len(done.stderr.splitlines()) == 1
    assert "none.conf" in done.stderr


def test_wrong_usage_is_exit_code_2():
    assert moorage("up", "--port", "none").returncode == 2
    assert moorage("nonsense").returncode == 2


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("stauts",), "status"),
        (("provider-confg",), "provider-config"),
        (("config", "shwo"), "show"),
        (("up", "--prot", "1"), "--port"),
    ],
)
def test_a_mistyped_word_is_refused_with_the_one_that_was_meant(words, meant):
    done = moorage(*words)
    assert done.returncode == 2
    assert f"Did you mean '{meant}'?" in done.stderr


@pytest.mark.parametrize("words", [("up",), ("status",), ("doctor",), ("backup", "DIRECTORY")])
def test_a_file_in_place_of_the_state_directory_is_refused_in_one_line_with_the_remedy(tmp_path, words):
    (tmp_path / "file").touch()
    config = tmp_path / "moorage.conf"
    config.write_text("[plane]\nstate_path = file\n")
    done = moorage(*[str(tmp_path / word) if word.isupper() else word for word in words], "--config", str(config))
    assert done.returncode == 1
    assert done.stderr.startswith(f"moorage: {tmp_path}/file cannot be the state directory: ")
    assert "[plane] state_path" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_first_start_below_a_file_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").touch()
    done = moorage("up", "--config", str(tmp_path / "file" / "moorage.conf"))
    assert done.returncode == 1
    assert done.stderr.startswith(f"moorage: {tmp_path}/file cannot be the state directory: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_file_that_cannot_be_written_is_named_in_one_line(tmp_path):
    config = tmp_path / "moorage.conf"
    config.write_text("[plane]\nstate_path = .\n")
    (tmp_path / "running.conf").mkdir()
    done = moorage("up", "--config", str(config), "--port", str(free_port()))
    assert done.returncode == 1
    assert done.stderr.startswith(f"moorage: {tmp_path}/running.conf: Is a directory; ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("text", "wanted"), [("90s", 90), ("45m", 2700), ("2h", 7200), ("1d12h", 129600)])
def test_periods_with_units_are_parsed_to_seconds(text, wanted):
    assert parse_period(text) == wanted


@pytest.mark.parametrize("text", ["", "1", "h", "1 h", "1h30", "-1h"])
def test_a_text_that_is_no_period_is_refused(text):
    with pytest.raises(StartError, match="is not a period"):
        parse_period(text)


def test_the_first_start_writes_the_configuration_file_that_later_starts_read(tmp_path):
    path = tmp_path / "state" / "moorage.conf"
    first = open_or_make_config(path, port=9001, clock="adjustable")
    again = open_or_make_config(path, port=None, clock=None)
    assert first == again
    assert again.server.port == 9001
    assert again.state == path.parent.resolve()
    assert again.provider_config == again.state / "provider_config"
    assert again.provider_config.is_dir()


TWO_LINES = "[agent]\nsimulated_hosts = 3\n"


def places_of(config: Config) -> tuple[Path | None, ...]:
    return config.state, config.log, config.provider_config, config.images, config.agent_socket


@pytest.mark.parametrize("when", ["before the first start", "after the first start", "added after the first start"])
def test_a_file_of_two_lines_changes_only_its_options(tmp_path, when):
    path = tmp_path / "plane" / "moorage.conf"
    path.parent.mkdir()
    if when != "before the first start":
        open_or_make_config(path, port=None, clock=None)
    path.write_text((path.read_text() if when.startswith("added") else "") + TWO_LINES)
    config = open_or_make_config(path, port=None, clock=None)
    untouched = open_or_make_config(tmp_path / "other" / "moorage.conf", port=None, clock=None)
    assert config == dataclasses.replace(untouched, agent=config.agent, source=config.source)
    assert config.agent.simulated_hosts == 3
    moved = [place and tmp_path / "plane" / place.relative_to(tmp_path / "other") for place in places_of(untouched)]
    assert list(places_of(config)) == moved
    assert config.provider_config.is_dir()


def test_the_generated_file_names_no_directory(tmp_path):
    path = tmp_path / "moorage.conf"
    open_or_make_config(path, port=9001, clock="adjustable")
    options = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert options == [
        "[plane]", "clock = adjustable", "[server]", "port = 9001",
    ]  # fmt: skip


def test_the_first_file_without_options_has_the_defaults_and_a_file_that_exists_is_not_changed(tmp_path):
    config = open_or_make_config(tmp_path / "moorage.conf", port=None, clock=None)
    assert config == dataclasses.replace(Config(), source=config.source)
    written = (tmp_path / "moorage.conf").read_text()
    open_or_make_config(tmp_path / "moorage.conf", port=9001, clock="adjustable")
    assert (tmp_path / "moorage.conf").read_text() == written


@pytest.mark.parametrize(
    ("text", "networks"),
    [
        ("", {"lab"}),
        ("[network]\nquota_ports = 9\n", {"lab"}),
        ("[network]\nnat = libvirt default subnet 192.168.122.0/24\n", set()),
        ("[agent]\nvirt_driver = libvirt\n", set()),
        ("[plane]\nservices = identity,placement,compute,network,image\n", set()),
        ("[endpoints]\nmoorage_network = http://services:8778/network\n", set()),
    ],
    ids=["empty", "another option", "a line", "libvirt", "hosts elsewhere", "networks elsewhere"],
)
def test_only_a_process_with_simulated_hosts_has_the_default_network(tmp_path, text, networks):
    (tmp_path / "moorage.conf").write_text(text)
    config = open_or_make_config(tmp_path / "moorage.conf", port=None, clock=None)
    assert "network" in config.runs
    assert set(config.default_networks) == networks


def test_the_generated_file_is_readable_by_its_owner_only(tmp_path):
    path = tmp_path / "moorage.conf"
    open_or_make_config(path, port=9001, clock="adjustable")
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_default_configuration_file_is_below_xdg_state_home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_config_path() == tmp_path / "moorage" / "moorage.conf"


def test_reservation_finish_upgrade_drops_the_columns_of_older_reservations(tmp_path):
    """R35 (instance-reservation): no other command drops them; see tests/store/reservation."""
    path = tmp_path / "state" / "moorage.conf"
    config = open_or_make_config(path, port=None, clock=None)
    engine = open_engine(config.database_url("reservation"))
    migrations.upgrade(engine, "reservation")
    for _ in range(2):
        done = moorage("reservation", "finish-upgrade", "--config", str(path))
        assert (done.returncode, done.stderr) == (0, "")
        columns = {column["name"] for column in sa.inspect(engine).get_columns("instance_reservations")}
        assert "affinity" in columns
        assert "aggregate_id" not in columns
    engine.dispose()
